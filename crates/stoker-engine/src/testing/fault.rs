//! Panics that tests wish for: data that ends in one of these words makes the step panic that it
//! names. There is no other way to have a panic in a room that has none, and shipped builds are
//! compiled without it.

use crate::sample::{Content, Conversation, Part};

/// At the end of a line: its last key, so that the line is JSON.
pub const IN_PARSING: &str = "\"panic\":\"in parsing\"}";
/// At the end of what is said last.
pub const IN_MEASURING: &str = "panic in measuring";
/// At the end of an image file; decoders don't look at what follows the image.
pub const IN_DECODING: &str = "panic in decoding";

pub(crate) fn panic_at(word: &str, data: &[u8]) {
    assert!(!data.ends_with(word.as_bytes()), "a test wished for a {word}");
}

pub(crate) fn panic_over(conversation: &Conversation) {
    let last = conversation.turns.last().map(|turn| match &turn.content {
        Content::Text(text) => text.as_str(),
        Content::Parts(parts) => match parts.last() {
            Some(Part::Text(text)) => text.as_str(),
            _ => "",
        },
    });
    panic_at(IN_MEASURING, last.unwrap_or_default().as_bytes());
}
