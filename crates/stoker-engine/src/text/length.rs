//! What becomes of a sample that is longer than `max-tokens`.
//!
//! Tokens and pixels must agree, so nothing is cut from the tokens: a shorter conversation is made,
//! of fewer turns or fewer images, and rendered and tokenised like any other. Of all shorter ones
//! the longest that fits is taken, found by bisection (length grows with turns and images). Turns
//! are dropped down to one that is learned: a question whose answer does not fit would cost its
//! tokens and pixels and teach nothing.

use crate::error::Flaw;
use crate::metrics::Room;
use crate::recipe::TrainOn;
use crate::sample::{Content, Conversation, EncodedText, Part, Turn};

/// Encodes the longest conversation of `turns` dropped from the end that fits.
pub(super) fn drop_turns(
    conversation: &Conversation,
    train_on: TrainOn,
    max_tokens: usize,
    encode: impl Fn(&Conversation) -> Result<EncodedText, Flaw>,
) -> Result<EncodedText, Flaw> {
    let turns = &conversation.turns;
    let ends: Vec<usize> =
        (1..turns.len()).filter(|count| is_learned_at_end(&turns[count - 1], train_on)).collect();
    let shorter = |choice: usize| Conversation {
        turns: turns[..ends[choice]].to_vec(),
        tools: conversation.tools.clone(),
    };
    longest(ends.len(), max_tokens, |choice| encode(&shorter(choice)))?.ok_or_else(|| {
        let reason = format!("not even the first learned turn fits in {max_tokens} tokens");
        Flaw::new(Room::Text, "nothing-to-learn", reason).hint("raise `text.max-tokens`")
    })
}

/// Encodes the conversation with as many of its first images as fit.
pub(super) fn drop_images(
    conversation: &Conversation,
    images: usize,
    max_tokens: usize,
    encode: impl Fn(&Conversation) -> Result<EncodedText, Flaw>,
) -> Result<EncodedText, Flaw> {
    longest(images, max_tokens, |kept| encode(&with_images(conversation, kept)))?.ok_or_else(|| {
        let reason = format!("the text alone has more than {max_tokens} tokens");
        Flaw::new(Room::Text, "too-long", reason).hint("raise `text.max-tokens`")
    })
}

/// Whether a turn is learned when it is the last one.
fn is_learned_at_end(turn: &Turn, train_on: TrainOn) -> bool {
    turn.train.unwrap_or(train_on == TrainOn::All || turn.role == "assistant")
}

/// The last of so many choices, ordered by length, that fits.
fn longest(
    choices: usize,
    max_tokens: usize,
    encode: impl Fn(usize) -> Result<EncodedText, Flaw>,
) -> Result<Option<EncodedText>, Flaw> {
    let mut best = None;
    let (mut fits, mut too_long) = (0, choices);
    while fits < too_long {
        let middle = usize::midpoint(fits, too_long);
        let text = encode(middle)?;
        if text.tokens.len() <= max_tokens {
            best = Some(text);
            fits = middle + 1;
        } else {
            too_long = middle;
        }
    }
    Ok(best)
}

fn with_images(conversation: &Conversation, kept: usize) -> Conversation {
    let mut shorter = conversation.clone();
    for turn in &mut shorter.turns {
        if let Content::Parts(parts) = &mut turn.content {
            parts.retain(|part| !matches!(part, Part::Image(number) if *number >= kept));
        }
    }
    shorter
}
