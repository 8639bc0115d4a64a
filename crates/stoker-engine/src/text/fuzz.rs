//! What fuzzing calls of this room: text in the data never becomes a special token.

use super::specials::{Piece, Specials};

/// Strings that stand side by side, parted by line feeds.
pub fn specials(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let names = ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<s>", "<s><s>", "é|"];
    let specials =
        Specials::new(names.iter().zip(1..).map(|(it, id)| ((*it).into(), id)).collect());
    let guarded = text.split('\n').map(|text| specials.guard(text)).collect::<Result<Vec<_>, _>>();
    let Ok(guarded) = guarded else { return };
    let guarded = guarded.concat();
    for piece in specials.pieces(&guarded) {
        match piece {
            Piece::Special { token, .. } => panic!("the data made the special token {token}"),
            Piece::Text { text: found, .. } => assert_eq!(found, text.replace('\n', "")),
        }
    }
    // What a template makes of it may be anything.
    specials.pieces(text);
}
