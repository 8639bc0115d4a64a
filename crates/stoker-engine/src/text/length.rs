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

/// How long a sample may be, and which key says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) tokens: usize,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Text,
    Pack,
}

impl Limit {
    /// The stricter of `text.max-tokens` and what a batch has room for.
    pub(super) fn of(max_tokens: Option<u32>, room_in_batch: Option<u32>) -> Option<Self> {
        let limit = |source| move |tokens: u32| Self { tokens: tokens as usize, source };
        let both = [max_tokens.map(limit(Source::Text)), room_in_batch.map(limit(Source::Pack))];
        both.into_iter().flatten().min_by_key(|limit| limit.tokens)
    }

    /// What is said of a sample that can't be shortened.
    pub(super) fn refuse(self, code: &'static str, reason: String) -> Flaw {
        Flaw::new(Room::Text, code, reason).hint(match self.source {
            Source::Text => "raise `text.max-tokens`",
            Source::Pack => "raise `pack.max-tokens`",
        })
    }

    /// What is said of a sample of so many tokens that is not to be shortened.
    pub(super) fn too_long(self, tokens: usize) -> Flaw {
        let most = self.tokens;
        let reason = match self.source {
            Source::Text => format!("it has {tokens} tokens, and `text.max-tokens` is {most}"),
            Source::Pack => {
                format!("it has {tokens} tokens, and `pack.max-tokens` leaves room for {most}")
            }
        };
        Flaw::new(Room::Text, "too-long", reason).hint("raise it, or set `text.on-too-long`")
    }
}

/// Encodes the longest conversation of `turns` dropped from the end that fits.
pub(super) fn drop_turns(
    conversation: &Conversation,
    train_on: TrainOn,
    limit: Limit,
    encode: impl Fn(&Conversation) -> Result<EncodedText, Flaw>,
) -> Result<EncodedText, Flaw> {
    let turns = &conversation.turns;
    let ends: Vec<usize> =
        (1..turns.len()).filter(|count| is_learned_at_end(&turns[count - 1], train_on)).collect();
    let shorter = |choice: usize| Conversation {
        turns: turns[..ends[choice]].to_vec(),
        tools: conversation.tools.clone(),
    };
    longest(ends.len(), limit.tokens, |choice| encode(&shorter(choice)))?.ok_or_else(|| {
        let reason = format!("not even the first learned turn fits in {} tokens", limit.tokens);
        limit.refuse("nothing-to-learn", reason)
    })
}

/// Encodes the conversation with as many of its first images as fit.
pub(super) fn drop_images(
    conversation: &Conversation,
    images: usize,
    limit: Limit,
    encode: impl Fn(&Conversation) -> Result<EncodedText, Flaw>,
) -> Result<EncodedText, Flaw> {
    let most = limit.tokens;
    longest(images, most, |kept| encode(&with_images(conversation, kept)))?.ok_or_else(|| {
        limit.refuse("too-long", format!("the text alone has more than {most} tokens"))
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
