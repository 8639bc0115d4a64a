//! Conversations become tokens, labels and positions.
//!
//! One pass: the model's chat template renders the conversation once; the text is cut at the special
//! tokens that the template wrote (`specials`); the cuts tell the turns and with them what is
//! learned (`turns`); the pieces between are tokenised; image placeholders are replaced by as many
//! tokens as the image has merged blocks of patches (`layout`). So the three things that usually
//! go wrong can't: text in the data never becomes a special token, labels are never found by
//! searching for a word, and image tokens always agree with the images' grids.
//!
//! [`Encoder::open`] tries the template on a short conversation and refuses one that does not write
//! turns as `<|im_start|>role … <|im_end|>`, which all of this rests on. An encoder is shared by all
//! threads.

mod building;
mod canonical;
mod excerpt;
mod files;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod layout;
mod length;
mod lexicon;
mod parts;
mod python;
mod specials;
mod template;
mod tokenizer;
mod turns;

use std::convert::Infallible;
use std::path::Path;

use minijinja::value::Value;
use tokenizers::pipeline::PipelineToken;

use self::files::{CHAT_TEMPLATE, Sources, problem};
use self::layout::Layout;
use self::length::Limit;
use self::specials::Piece;
use self::template::Template;
use self::tokenizer::{Ids, Tables, Tokenizer};
use self::turns::{Block, Lesson, Rules};
use crate::error::{Error, Flaw, Result};
use crate::metrics::Room;
use crate::recipe::{self, OnTooLong};
use crate::sample::{Content, Conversation, EncodedText, Grid, Part, Turn};

/// Bytes of text that a token stands for at least, in most text: what memory is taken by.
const BYTES_OF_A_TOKEN: usize = 3;

/// Chat template, tokenizer and rules for labels.
#[derive(Debug)]
pub struct Encoder {
    tokenizer: Tokenizer,
    template: Template,
    config: recipe::Text,
    limit: Option<Limit>,
    /// What decides what it gives, beside the tokenizer.
    identity: String,
}

impl Encoder {
    /// From the model folder and the recipe's section. `room_in_batch` is the most tokens that a
    /// sample may have besides, if batches are limited. The tokenizer is being built when this
    /// returns; [`Self::built`] tells how that went.
    pub fn open(
        model: Option<&Path>,
        config: &recipe::Text,
        room_in_batch: Option<u32>,
    ) -> Result<Self> {
        let sources = Sources::find(model, config)?;
        let tokenizer = Tokenizer::open(&sources)?;
        let refused = |reason: String| {
            let hint = "use the chat template of a Qwen vision-language model";
            Error::Recipe(vec![problem(CHAT_TEMPLATE, &sources.template_path, &reason, hint)])
        };
        let template = Template::compile(&sources.template, variables(&sources, config))
            .map_err(|error| refused(template::chain(&error)))?;
        let limit = Limit::of(config.max_tokens, room_in_batch);
        let identity = identity(tokenizer.ids, &sources.template, config, limit);
        let encoder = Self { tokenizer, template, config: config.clone(), limit, identity };
        encoder.try_template().map_err(refused)?;
        Ok(encoder)
    }

    /// Whether the tokenizer is built. Before, [`Self::encode`] takes a hundred times as long.
    pub fn is_built(&self) -> bool {
        self.tokenizer.is_built()
    }

    /// Waits until the tokenizer is built.
    pub fn built(&self) -> Result<()> {
        self.tokenizer.built()
    }

    /// What is wrong with the tokenizer, as far as it is built.
    pub fn unbroken(&self) -> Result<()> {
        self.tokenizer.unbroken()
    }

    /// Tokens, labels, kinds and positions of one conversation. `grids` are its images', in the
    /// order of their mention.
    pub fn encode(
        &self,
        conversation: &Conversation,
        grids: &[Grid],
        merge_size: u32,
    ) -> Result<EncodedText, Flaw> {
        let encode = |conversation: &Conversation| {
            let images = images(&conversation.turns).count();
            self.encode_whole(conversation, grids.get(..images).unwrap_or(grids), merge_size)
        };
        if !images(&conversation.turns).eq(0..grids.len()) {
            let reason = "the images are not mentioned once each, in their order";
            return Err(Flaw::new(Room::Text, "image-count", reason));
        }
        if !turns::learned_turns(&conversation.turns, self.config.train_on).contains(&true) {
            return Err(nothing_to_learn());
        }
        let mut text = encode(conversation)?;
        if let Some(limit) = self.limit.filter(|limit| text.tokens.len() > limit.tokens) {
            text = match self.config.on_too_long {
                OnTooLong::Refuse => return Err(limit.too_long(text.tokens.len())),
                OnTooLong::DropTurns => {
                    length::drop_turns(conversation, self.config.train_on, limit, encode)?
                }
                OnTooLong::DropImages => {
                    length::drop_images(conversation, grids.len(), limit, encode)?
                }
            };
        }
        if text.trained.contains(&true) { Ok(text) } else { Err(nothing_to_learn()) }
    }

    /// Everything that decides what `encode` gives, and nothing else: not where the files lie. Waits
    /// until the tokenizer is read.
    pub fn identity(&self) -> Result<String> {
        Ok(format!("{:016x} {}", self.tokenizer.hash()?, self.identity))
    }

    /// The id that `input_ids` are padded with.
    pub fn pad_token(&self) -> u32 {
        self.tokenizer.ids.pad
    }

    /// The text of an image by itself: its placeholder between the tokens that stand around images.
    pub fn lone_image(&self, grid: Grid, merge_size: u32) -> EncodedText {
        let ids = &self.tokenizer.ids;
        let mut layout = Layout::new(merge_size, grid.tokens(merge_size) + 2);
        layout.push(ids.vision_start, false);
        layout.push_image(ids.image_pad, grid);
        layout.push(ids.vision_end, false);
        layout.finish()
    }

    /// Text of one token, for people.
    pub fn token_text(&self, token: u32) -> String {
        self.tokenizer.text(token)
    }

    /// One conversation, however long.
    fn encode_whole(
        &self,
        conversation: &Conversation,
        grids: &[Grid],
        merge_size: u32,
    ) -> Result<EncodedText, Flaw> {
        let rendered = self.template.render(conversation, &self.tokenizer.specials)?;
        let pieces = self.tokenizer.specials.pieces(&rendered);
        let ids = &self.tokenizer.ids;
        let is_pad = |piece: &&Piece<'_>| matches!(piece, Piece::Special { token, .. } if *token == ids.image_pad);
        let placeholders = pieces.iter().filter(is_pad).count();
        if placeholders != grids.len() {
            let reason =
                format!("the chat template shows {placeholders} of {} images", grids.len());
            return Err(Flaw::new(Room::Text, "image-count", reason)
                .hint("Qwen's templates show images in user and tool turns only"));
        }
        let blocks = turns::blocks(&pieces, ids);
        let learned = turns::learned_blocks(&conversation.turns, &blocks, self.config.train_on)?;
        let rules = Rules {
            marks_generation: self.template.marks_generation,
            train_newline: self.config.train_newline,
        };
        let lessons = turns::lessons(&pieces, &blocks, &learned, ids, rules);
        self.lay_out(&pieces, &lessons, grids, merge_size)
    }

    fn lay_out(
        &self,
        pieces: &[Piece<'_>],
        lessons: &[Lesson],
        grids: &[Grid],
        merge_size: u32,
    ) -> Result<EncodedText, Flaw> {
        let of_images: usize = grids.iter().map(|grid| grid.tokens(merge_size)).sum();
        let bytes = |piece: &Piece<'_>| match piece {
            Piece::Special { .. } => BYTES_OF_A_TOKEN,
            Piece::Text { text, .. } => text.len(),
        };
        let of_text = pieces.iter().map(bytes).sum::<usize>() / BYTES_OF_A_TOKEN;
        let mut layout = Layout::new(merge_size, of_images + of_text);
        let texts = pieces.iter().filter_map(|piece| match piece {
            Piece::Special { .. } => None,
            Piece::Text { text, .. } => Some(text.as_ref()),
        });
        let tables = self.tokenizer.tables(texts)?;
        let mut grids = grids.iter();
        let (mut tokens, mut trained) = (Vec::new(), Vec::new());
        for (piece, lesson) in pieces.iter().zip(lessons) {
            match piece {
                Piece::Special { token, .. } if *token == self.tokenizer.ids.image_pad => {
                    let grid = grids.next().expect("placeholders and grids were counted");
                    layout.push_image(*token, *grid);
                }
                Piece::Special { token, .. } => {
                    layout.push(*token, *lesson == Lesson::Everything);
                }
                Piece::Text { text, .. } => {
                    tokens.clear();
                    tables.encode(text, &mut tokens)?;
                    mark_trained(&tables, text, &tokens, lesson, &mut trained)?;
                    layout.push_text(tokens.iter().map(|token| tables.id(*token)), &trained);
                }
            }
        }
        Ok(layout.finish())
    }

    /// Renders a short conversation and checks that the template writes turns as expected.
    fn try_template(&self) -> Result<(), String> {
        let turn = |role: &str, text: &str| Turn {
            role: role.to_owned(),
            content: Content::Text(text.to_owned()),
            extra: serde_json::Map::new(),
            train: None,
        };
        let turns = vec![
            turn("user", "first question"),
            turn("assistant", "first answer"),
            turn("user", "second question"),
            turn("assistant", "second answer"),
        ];
        let conversation = Conversation { turns, tools: Vec::new() };
        let specials = &self.tokenizer.specials;
        let rendered = self.template.render(&conversation, specials).map_err(|flaw| flaw.reason)?;
        let pieces = specials.pieces(&rendered);
        let blocks = turns::blocks(&pieces, &self.tokenizer.ids);
        let says = |block: &Block<'_>, answer: &str| {
            let holds = |piece: &Piece<'_>| matches!(piece, Piece::Text { text, .. } if text.contains(answer));
            block.closed && pieces[block.pieces.clone()].iter().any(holds)
        };
        let mut answers = blocks.iter().filter(|block| block.role == "assistant");
        let as_expected = answers.next().is_some_and(|block| says(block, "first answer"))
            && answers.next().is_some_and(|block| says(block, "second answer"))
            && answers.next().is_none();
        let reason = "it does not write assistant turns as <|im_start|>assistant … <|im_end|>";
        if as_expected { Ok(()) } else { Err(reason.to_owned()) }
    }
}

/// Marks which tokens of a piece of text overlap the ranges that are learned.
fn mark_trained(
    tables: &Tables<'_>,
    text: &str,
    tokens: &[PipelineToken],
    lesson: &Lesson,
    trained: &mut Vec<bool>,
) -> Result<(), Flaw> {
    trained.clear();
    trained.resize(tokens.len(), *lesson == Lesson::Everything);
    let Lesson::Parts(ranges) = lesson else { return Ok(()) };
    for range in ranges {
        let start = normalised_length(tables, &text[..range.start])?;
        let to_the_end = range.end == text.len();
        let stop =
            if to_the_end { usize::MAX } else { normalised_length(tables, &text[..range.end])? };
        let mut at = 0;
        for (token, trained) in tokens.iter().zip(trained.iter_mut()) {
            if to_the_end && at >= start {
                *trained = true;
                continue;
            }
            let end = at + tables.byte_length(*token);
            *trained |= at < stop && start < end;
            at = end;
        }
    }
    Ok(())
}

/// Length in bytes of the beginning of a piece as the tokenizer normalises it (NFC).
fn normalised_length(tables: &Tables<'_>, beginning: &str) -> Result<usize, Flaw> {
    if beginning.is_ascii() {
        return Ok(beginning.len());
    }
    let mut tokens = Vec::new();
    tables.encode(beginning, &mut tokens)?;
    Ok(tokens.iter().map(|token| tables.byte_length(*token)).sum())
}

/// What the template sees beside the conversation, as in transformers: the tokens that the settings
/// name, and the recipe's options.
fn variables(sources: &Sources, config: &recipe::Text) -> Vec<(String, Value)> {
    let names = ["bos_token", "eos_token", "pad_token", "unk_token"];
    let tokens = names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), Value::from(sources.named_token(name)?))));
    let plain = |text: &str| Ok::<_, Infallible>(Value::from(text));
    let options = config.template_options.iter().map(|(name, option)| {
        let Ok(value) = python::value(option, &plain);
        (name.clone(), value)
    });
    tokens.chain(options).collect()
}

/// The numbers of the images, in the order of their mention.
fn images(turns: &[Turn]) -> impl Iterator<Item = usize> {
    let parts = turns.iter().flat_map(|turn| match &turn.content {
        Content::Text(_) => &[],
        Content::Parts(parts) => &parts[..],
    });
    parts.filter_map(|part| match part {
        Part::Image(number) => Some(*number),
        Part::Text(_) => None,
    })
}

fn nothing_to_learn() -> Flaw {
    Flaw::new(Room::Text, "nothing-to-learn", "no token of it is learned")
        .hint("it needs an assistant turn, or another `text.train-on`")
}

fn identity(ids: Ids, template: &str, config: &recipe::Text, limit: Option<Limit>) -> String {
    let recipe::Text { template_options, train_on, train_newline, on_too_long, .. } = config;
    let max_tokens = limit.map(|limit| limit.tokens);
    format!(
        "{ids:?} {template:?} {template_options:?} {train_on:?} {train_newline} {max_tokens:?} \
         {on_too_long:?}"
    )
}
