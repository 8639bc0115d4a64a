//! Which pieces of a rendered conversation are learned.
//!
//! The template's own `<|im_start|>` and `<|im_end|>` cut the text into *blocks*; no string of the
//! data can forge them (see [`super::specials`]). So the block whose header is `assistant` are the
//! assistant turns, in their order, without looking for anything in the text. That is checked, not
//! believed: there must be as many such blocks as assistant turns, or the sample is refused.
//! What a block teaches is all that follows its header (content, tool calls), the end of turn and
//! the line break after it; where a training template has `{% generation %}`, what it marks.
//!
//! Other turns need not have a block each: Qwen3-VL puts neighbouring tool turns into one, drops a
//! system turn that is not first, and writes tool declarations into a system block; Qwen2.5-VL adds
//! a default system block. So the turns between two assistant turns are matched with the blocks
//! between two assistant blocks: one to one if the roles agree, else only if all of these turns are
//! to be treated alike. Blocks that the template adds in front follow the recipe's `train-on`.

use std::iter;
use std::ops::Range;

use super::specials::Piece;
use super::tokenizer::Ids;
use crate::error::Flaw;
use crate::metrics::Room;
use crate::recipe::TrainOn;
use crate::sample::Turn;

const ASSISTANT: &str = "assistant";

/// A turn as rendered: `<|im_start|>role⏎ … <|im_end|>`.
#[derive(Debug, PartialEq)]
pub(super) struct Block<'a> {
    pub(super) role: &'a str,
    /// Its pieces, from the start of turn to the end of turn.
    pub(super) pieces: Range<usize>,
    /// Length of the header in the first text piece, in bytes.
    header: usize,
    /// Whether it has an end of turn.
    pub(super) closed: bool,
}

/// What of a piece is learned.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lesson {
    Nothing,
    Everything,
    /// Tokens that overlap these ranges of bytes.
    Parts(Vec<Range<usize>>),
}

/// The blocks of a conversation.
pub(super) fn blocks<'a>(pieces: &'a [Piece<'_>], ids: &Ids) -> Vec<Block<'a>> {
    let is =
        |piece: &Piece<'_>, id: u32| matches!(piece, Piece::Special { token, .. } if *token == id);
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < pieces.len() {
        if !is(&pieces[at], ids.turn_start) {
            at += 1;
            continue;
        }
        let ends = |piece: &&Piece<'_>| is(piece, ids.turn_end) || is(piece, ids.turn_start);
        let inner = pieces[at + 1..].iter().take_while(|piece| !ends(piece)).count();
        let end = at + 1 + inner;
        let closed = pieces.get(end).is_some_and(|piece| is(piece, ids.turn_end));
        let (role, header) = match pieces.get(at + 1) {
            Some(Piece::Text { text, .. }) => match text.split_once('\n') {
                Some((role, _)) => (role, role.len() + 1),
                None => (&**text, text.len()),
            },
            _ => ("", 0),
        };
        let pieces = at..end + usize::from(closed);
        at = pieces.end;
        blocks.push(Block { role, pieces, header, closed });
    }
    blocks
}

/// For each turn, whether it is learned: the data's own word, or the recipe's rule.
pub(super) fn learned_turns(turns: &[Turn], train_on: TrainOn) -> Vec<bool> {
    let last = turns.iter().rposition(|turn| turn.role == ASSISTANT);
    let by_rule = |index: usize, turn: &Turn| match train_on {
        TrainOn::Assistant => turn.role == ASSISTANT,
        TrainOn::LastAssistant => Some(index) == last,
        TrainOn::All => true,
    };
    let word = |(index, turn): (usize, &Turn)| turn.train.unwrap_or_else(|| by_rule(index, turn));
    turns.iter().enumerate().map(word).collect()
}

/// For each block, whether it is learned.
pub(super) fn learned_blocks(
    turns: &[Turn],
    blocks: &[Block<'_>],
    train_on: TrainOn,
) -> Result<Vec<bool>, Flaw> {
    let learned = learned_turns(turns, train_on);
    let spoken = turns.iter().filter(|turn| turn.role == ASSISTANT).count();
    let rendered = blocks.iter().filter(|block| block.role == ASSISTANT).count();
    if spoken != rendered {
        let reason = format!("the chat template made {rendered} assistant turns of {spoken}");
        return Err(Flaw::new(Room::Text, "turns-differ", reason));
    }
    let mut answer = Vec::with_capacity(blocks.len());
    let (mut turn, mut block) = (0, 0);
    loop {
        let turn_end = next_assistant(turns[turn..].iter().map(|t| t.role.as_str())) + turn;
        let block_end = next_assistant(blocks[block..].iter().map(|b| b.role)) + block;
        answer.extend(between(
            &turns[turn..turn_end],
            &learned[turn..turn_end],
            &blocks[block..block_end],
            train_on,
        )?);
        if turn_end == turns.len() {
            return Ok(answer);
        }
        answer.push(learned[turn_end]);
        (turn, block) = (turn_end + 1, block_end + 1);
    }
}

fn next_assistant<'a>(mut roles: impl Iterator<Item = &'a str>) -> usize {
    let mut count = 0;
    while roles.next().is_some_and(|role| role != ASSISTANT) {
        count += 1;
    }
    count
}

/// Blocks that lie between assistant blocks.
fn between(
    turns: &[Turn],
    learned: &[bool],
    blocks: &[Block<'_>],
    train_on: TrainOn,
) -> Result<Vec<bool>, Flaw> {
    let added = blocks.len().saturating_sub(turns.len());
    let mut answer = vec![train_on == TrainOn::All; added];
    let agree = |(turn, block): (&Turn, &Block<'_>)| turn.role == block.role;
    let own = &blocks[added..];
    if own.len() == turns.len() && turns.iter().zip(own).all(agree) {
        answer.extend(learned);
    } else if learned.iter().all(|word| *word == learned[0]) {
        answer.resize(blocks.len(), learned.first().copied().unwrap_or(false));
    } else {
        let reason = "the chat template merges or drops turns of which only some are learned";
        return Err(Flaw::new(Room::Text, "turns-differ", reason));
    }
    Ok(answer)
}

/// What of each piece is learned.
pub(super) fn lessons(
    pieces: &[Piece<'_>],
    blocks: &[Block<'_>],
    learned: &[bool],
    ids: &Ids,
    rules: Rules,
) -> Vec<Lesson> {
    let mut lessons = vec![Lesson::Nothing; pieces.len()];
    for (block, _) in blocks.iter().zip(learned).filter(|(_, learned)| **learned) {
        let marked = rules.marks_generation && block.role == ASSISTANT;
        for index in block.pieces.clone().skip(1) {
            let header = if index == block.pieces.start + 1 { block.header } else { 0 };
            lessons[index] = match &pieces[index] {
                Piece::Special { token, .. } if ids.is_vision(*token) => Lesson::Nothing,
                Piece::Special { generated, .. } if marked && !generated => Lesson::Nothing,
                Piece::Special { .. } => Lesson::Everything,
                Piece::Text { generated, .. } if marked => Lesson::Parts(generated.clone()),
                Piece::Text { text, .. } => Lesson::Parts(iter::once(header..text.len()).collect()),
            };
        }
        if let Some(Piece::Text { text, generated }) = pieces.get(block.pieces.end)
            && rules.train_newline
            && block.closed
            && text.starts_with('\n')
            && !(marked && generated.is_empty())
        {
            lessons[block.pieces.end] = Lesson::Parts(iter::once(0..1).collect());
        }
    }
    lessons
}

/// How blocks are learned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether the template marks what is learned of assistant turns.
    pub(super) marks_generation: bool,
    /// Whether the line break after the end of turn is learned.
    pub(super) train_newline: bool,
}
