//! Keeps the template's special tokens apart from text in the data that merely looks like them.
//!
//! Before rendering, each string of the data is *guarded*: a mark goes into every place where it
//! holds a special-token string, and behind an end that could begin one (`<|im_`), so that two
//! strings side by side can't make one either. The mark is a Unicode noncharacter, which data may
//! not hold. After rendering, a special-token string without a mark in it can only come from the
//! template: the text is cut there, the marks are taken out, and the pieces between are tokenised
//! as plain text. For ordinary text that gives the ids of tokenising the whole, because tokenizers
//! cut at special tokens first. Two more marks carry the template's `{% generation %}` spans.
//!
//! Special are the tokens that `tokenizer.json` calls special. Other added tokens (`<think>`,
//! `<tool_call>`) are words that data uses on purpose, and keep their ids.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::Flaw;
use crate::metrics::Room;

const BREAK: char = '\u{fdd0}';
pub(super) const GENERATION_START: char = '\u{fdd1}';
pub(super) const GENERATION_END: char = '\u{fdd2}';
const MARKS: [char; 3] = [BREAK, GENERATION_START, GENERATION_END];

/// First byte of the marks in UTF-8.
const MARK_BYTE: u8 = 0xef;

/// The special tokens of a tokenizer.
#[derive(Debug)]
pub(super) struct Specials {
    /// Longest first, so that the longest match wins.
    tokens: Vec<(String, u32)>,
    first_bytes: [bool; 256],
}

/// A stretch of a rendered conversation.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// A special token of the template's own.
    Special { token: u32, generated: bool },
    /// Plain text; `generated` are the byte ranges inside `{% generation %}`.
    Text { text: Cow<'a, str>, generated: Vec<Range<usize>> },
}

impl Specials {
    pub(super) fn new(mut tokens: Vec<(String, u32)>) -> Self {
        tokens.retain(|(text, _)| !text.is_empty());
        tokens.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let mut first_bytes = [false; 256];
        for (text, _) in &tokens {
            first_bytes[usize::from(text.as_bytes()[0])] = true;
        }
        Self { tokens, first_bytes }
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.tokens.iter().find(|(text, _)| text == token).map(|(_, id)| *id)
    }

    /// The data's string with a mark in whatever could be taken for a special token.
    pub(super) fn guard<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, Flaw> {
        if text.as_bytes().contains(&MARK_BYTE) && text.contains(MARKS) {
            let reason = "a text holds a Unicode noncharacter (U+FDD0 to U+FDD2)";
            return Err(Flaw::new(Room::Text, "noncharacter", reason)
                .hint("noncharacters mean nothing in text: remove them from the data"));
        }
        let mut guarded = String::new();
        let mut copied = 0;
        let mut open_end = false;
        for at in self.candidates(text) {
            let rest = &text[at..];
            if self.starting(rest).is_some() {
                let after = at + rest.chars().next().map_or(0, char::len_utf8);
                guarded.push_str(&text[copied..after]);
                guarded.push(BREAK);
                copied = after;
            } else {
                open_end |= self.tokens.iter().any(|(token, _)| token.starts_with(rest));
            }
        }
        if copied == 0 && !open_end {
            return Ok(Cow::Borrowed(text));
        }
        guarded.push_str(&text[copied..]);
        if open_end {
            guarded.push(BREAK);
        }
        Ok(Cow::Owned(guarded))
    }

    /// A rendered conversation, cut at the template's special tokens and freed from marks.
    pub(super) fn pieces<'a>(&self, rendered: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let mut generating = false;
        let mut done = 0;
        for at in self.candidates(rendered) {
            if at < done {
                continue;
            }
            if let Some((token, id)) = self.starting(&rendered[at..]) {
                push_text(&mut pieces, &rendered[done..at], &mut generating);
                pieces.push(Piece::Special { token: id, generated: generating });
                done = at + token.len();
            }
        }
        push_text(&mut pieces, &rendered[done..], &mut generating);
        pieces
    }

    fn candidates<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        let is_first = |byte: &u8| self.first_bytes[usize::from(*byte)];
        text.as_bytes().iter().enumerate().filter(move |(_, byte)| is_first(byte)).map(|(at, _)| at)
    }

    fn starting(&self, text: &str) -> Option<(&str, u32)> {
        let found = self.tokens.iter().find(|(token, _)| text.starts_with(token.as_str()))?;
        Some((&found.0, found.1))
    }
}

fn push_text<'a>(pieces: &mut Vec<Piece<'a>>, marked: &'a str, generating: &mut bool) {
    let (text, generated) = unmark(marked, generating);
    if !text.is_empty() {
        pieces.push(Piece::Text { text, generated });
    }
}

/// Takes the marks out; `generating` is carried from piece to piece.
fn unmark<'a>(marked: &'a str, generating: &mut bool) -> (Cow<'a, str>, Vec<Range<usize>>) {
    let mut text = Cow::Borrowed(marked);
    let mut generated = Vec::new();
    let mut start = 0;
    if marked.as_bytes().contains(&MARK_BYTE) && marked.contains(MARKS) {
        let mut plain = String::with_capacity(marked.len());
        for letter in marked.chars() {
            match letter {
                BREAK => {}
                GENERATION_START => {
                    *generating = true;
                    start = plain.len();
                }
                GENERATION_END => {
                    if std::mem::take(generating) && start < plain.len() {
                        generated.push(start..plain.len());
                    }
                }
                letter => plain.push(letter),
            }
        }
        text = Cow::Owned(plain);
    }
    if *generating && start < text.len() {
        generated.push(start..text.len());
    }
    (text, generated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn specials() -> Specials {
        let names = ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<s>", "<s><s>", "é|"];
        Specials::new(names.iter().zip(1..).map(|(name, id)| ((*name).to_owned(), id)).collect())
    }

    fn special(token: u32) -> Piece<'static> {
        Piece::Special { token, generated: false }
    }

    fn text(text: &str) -> Piece<'static> {
        Piece::Text { text: text.to_owned().into(), generated: Vec::new() }
    }

    #[test]
    fn a_template_is_cut_at_its_special_tokens_longest_first() {
        let pieces = specials().pieces("<|im_start|>user\n<s><s><s>é|x<|im_end|>");
        assert_eq!(
            pieces,
            [special(1), text("user\n"), special(5), special(4), special(6), text("x"), special(2)]
        );
    }

    #[test]
    fn generation_spans_survive_cuts_and_breaks() {
        let rendered = "<s>ab\u{fdd1}c\u{fdd0}d<|im_end|>\n\u{fdd2}e\u{fdd1}\u{fdd2}f";
        let [_, first, second, third] = &specials().pieces(rendered)[..] else { panic!() };
        assert_eq!(
            *first,
            Piece::Text { text: "abcd".into(), generated: std::iter::once(2..4).collect() }
        );
        assert_eq!(*second, Piece::Special { token: 2, generated: true });
        assert_eq!(
            *third,
            Piece::Text { text: "\nef".into(), generated: std::iter::once(0..1).collect() }
        );
    }

    #[test]
    fn noncharacters_in_data_are_refused() {
        for mark in MARKS {
            let flaw = specials().guard(&format!("a{mark}")).unwrap_err();
            assert_eq!(flaw.code, "noncharacter");
        }
        assert!(specials().guard("，\u{fdd3}").is_ok());
    }

    /// Strings made of pieces of special tokens, which fall together in all ways.
    fn shards() -> impl Strategy<Value = Vec<String>> {
        let shard = prop::sample::select(vec![
            "<",
            "|",
            "im_",
            "end",
            "start",
            "|>",
            "<|im_end|>",
            "<s>",
            "s>",
            "é",
            "<|",
            "image_pad",
            " ",
        ]);
        prop::collection::vec(prop::collection::vec(shard, 0..6).prop_map(|v| v.concat()), 1..5)
    }

    proptest! {
        #[test]
        fn guarded_strings_side_by_side_never_make_a_special_token(strings in shards()) {
            let specials = specials();
            let guarded: String = strings.iter().map(|s| specials.guard(s).unwrap()).collect();
            let whole = strings.concat();
            let expected = if whole.is_empty() { vec![] } else { vec![text(&whole)] };
            prop_assert_eq!(specials.pieces(&guarded), expected);
        }
    }
}
