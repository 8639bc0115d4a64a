//! The tokenizer: a byte-level BPE from `tokenizer.json`, and the ids of the tokens that conversations
//! are built of, found by their text.
//!
//! Making the library's tables of a vocabulary takes longer than anything else that a loader does
//! before its first batch, so it is done on threads of its own, while datasets are opened and first
//! requests are on their way; and texts that come before it is done have tables of their own
//! ([`excerpt`](super::excerpt)). Only what the file says besides is looked at when it is opened: what is
//! wrong with vocabulary and merges comes out later.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};

use tokenizers::ConvertError;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};

use super::building::Building;
use super::canonical::{AddedToken, Opened};
use super::excerpt::{Excerpt, Source};
use super::files::{Sources, TOKENIZER, problem};
use super::specials::Specials;
use crate::error::{Error, Flaw, Result};
use crate::metrics::Room;
use crate::thread::Priority;

/// The tokens that conversations are built of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    pub(super) turn_start: u32,
    pub(super) turn_end: u32,
    pub(super) image_pad: u32,
    pub(super) vision_start: u32,
    pub(super) vision_end: u32,
    pub(super) video_pad: u32,
    /// What `input_ids` are padded with.
    pub(super) pad: u32,
}

impl Ids {
    /// Tokens that stand for pixels and are never learned.
    pub(super) fn is_vision(&self, token: u32) -> bool {
        [self.image_pad, self.vision_start, self.vision_end, self.video_pad].contains(&token)
    }
}

/// What the threads are called that read and build.
const THREAD: &str = "stoker-tokenizer";

/// What is wrong with a file, and what to do.
type Fault = (String, &'static str);

/// A tokenizer.
pub(super) struct Tokenizer {
    reading: Building<Result<Read, Fault>>,
    pipeline: Building<Result<PipelineTokenizer, Fault>>,
    path: PathBuf,
    options: EncodeOptions,
    pub(super) specials: Specials,
    pub(super) ids: Ids,
}

/// What is known once the whole file is read.
struct Read {
    /// Of all that decides its tokens.
    hash: u64,
    /// Nothing once it is built.
    source: Weak<Source>,
}

impl Tokenizer {
    /// Reads a tokenizer, and begins to build it.
    pub(super) fn open(sources: &Sources) -> Result<Self> {
        let path = &sources.tokenizer;
        let opened = open(path).map_err(|error| faulty(path, &broken(&error)))?;
        if !opened.is_byte_level_bpe() {
            let hint = "stoker reads the byte-level BPE tokenizers of the Qwen families";
            return Err(faulty(path, &("not a byte-level BPE".to_owned(), hint)));
        }
        check_special(opened.added_tokens()).map_err(|fault| faulty(path, &fault))?;
        let special = opened.added_tokens().iter().filter(|token| token.special);
        let special = special.map(|token| (token.content.clone(), token.id));
        let specials = Specials::new(special.collect());
        let ids = ids(&specials, sources.named_token("pad_token"))
            .map_err(|fault| faulty(path, &fault))?;
        let (give, take) = mpsc::sync_channel(1);
        let read = move || {
            let source = read(opened);
            let read = source.as_ref().map(|source| Read {
                hash: xxhash_rust::xxh3::xxh3_64(source.json.as_bytes()),
                source: Arc::downgrade(source),
            });
            let read = read.map_err(Clone::clone);
            // Nobody builds it where there was no thread for that.
            drop(give.send(source));
            read
        };
        let build = move || {
            let unread = || ("it could not be read".to_owned(), "look for what was said before");
            let source: Arc<Source> = take.recv().unwrap_or_else(|_| Err(unread()))?;
            source.prepare();
            build(&source.json, &source.added_tokens)
        };
        let reading = Building::start(THREAD, Priority::Usual, read)?;
        let pipeline = Building::start(THREAD, Priority::Nicer, build)?;
        Ok(Self { reading, pipeline, path: path.clone(), options: options(), specials, ids })
    }

    /// A hash of all that decides its tokens; waits until it is read.
    pub(super) fn hash(&self) -> Result<u64> {
        self.reading.wait().as_ref().map(|read| read.hash).map_err(|it| faulty(&self.path, it))
    }

    pub(super) fn is_built(&self) -> bool {
        self.pipeline.made().is_some()
    }

    /// Waits until it is built.
    pub(super) fn built(&self) -> Result<()> {
        self.pipeline.wait();
        self.unbroken()
    }

    /// What is wrong with it, as far as it is built.
    pub(super) fn unbroken(&self) -> Result<()> {
        match self.pipeline.made() {
            Some(Err(fault)) => Err(faulty(&self.path, fault)),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    fn pipeline(&self) -> Result<&PipelineTokenizer, Flaw> {
        let flaw =
            |(reason, hint): &Fault| Flaw::new(Room::Text, "tokenizer", reason.clone()).hint(hint);
        self.pipeline.wait().as_ref().map_err(flaw)
    }

    /// What gives the tokens of these texts; and how long beginnings of them are, if not their tokens.
    pub(super) fn tables<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
    ) -> Result<Tables<'_>, Flaw> {
        let excerpt = || {
            let read = self.reading.wait().as_ref().ok()?;
            read.source.upgrade()?.excerpt(texts, &self.options)
        };
        let excerpt = if self.is_built() { None } else { excerpt() };
        let of =
            excerpt.map_or_else(|| self.pipeline().map(Of::Whole), |of| Ok(Of::Excerpt(of)))?;
        Ok(Tables { of, options: &self.options })
    }

    /// The text of a token, for people: a part of a character shows as a replacement character.
    pub(super) fn text(&self, token: u32) -> String {
        let decode = |pipeline: &PipelineTokenizer| pipeline.decode(&[token], false).ok();
        self.pipeline().ok().and_then(decode).unwrap_or_default()
    }
}

/// What texts are tokenised with.
pub(super) struct Tables<'a> {
    of: Of<'a>,
    options: &'a EncodeOptions,
}

enum Of<'a> {
    Whole(&'a PipelineTokenizer),
    Excerpt(Excerpt),
}

impl Tables<'_> {
    fn pipeline(&self) -> &PipelineTokenizer {
        match &self.of {
            Of::Whole(pipeline) => pipeline,
            Of::Excerpt(excerpt) => &excerpt.pipeline,
        }
    }

    /// Appends the tokens of a piece of plain text.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<PipelineToken>) -> Result<(), Flaw> {
        self.pipeline().encode_into(text, self.options, tokens).map_err(|error| {
            Flaw::new(Room::Text, "tokenizer", format!("the tokenizer can't encode this: {error}"))
        })
    }

    /// The number of a token in the vocabulary.
    pub(super) fn id(&self, token: PipelineToken) -> u32 {
        match &self.of {
            Of::Whole(_) => token.id(),
            Of::Excerpt(excerpt) => excerpt.id(token),
        }
    }

    /// How many bytes of (normalised) text a token stands for. The model spells its tokens with one
    /// letter per byte, added tokens are spelt as they are.
    pub(super) fn byte_length(&self, token: PipelineToken) -> usize {
        let (id, pipeline) = (token.id(), self.pipeline());
        let added = pipeline.get_added_vocabulary().simple_id_to_token(id);
        let learned =
            || pipeline.get_model().id_to_token(id).map_or(0, |text| text.chars().count());
        added.map_or_else(learned, |text| text.len())
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// Pieces hold no special tokens of the template's, and what looks like one is text.
fn options() -> EncodeOptions {
    EncodeOptions {
        encode_special_tokens: true,
        truncation: Override::Off,
        padding: Override::Off,
        ..EncodeOptions::no_specials()
    }
}

fn faulty(path: &Path, (reason, hint): &Fault) -> Error {
    Error::Recipe(vec![problem(TOKENIZER, path, reason, hint)])
}

fn broken(error: &tokenizers::Error) -> Fault {
    (format!("not a tokenizer ({error})"), "get the file anew")
}

fn open(path: &Path) -> tokenizers::Result<Opened> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConvertError::Io { path: path.to_owned(), source })?;
    Opened::new(text)
}

fn read(opened: Opened) -> Result<Arc<Source>, Fault> {
    let canonical = opened.canonical().map_err(|error| broken(&error))?;
    Ok(Arc::new(Source::new(canonical)))
}

/// Builds what a file says. Where that can't be done of the quick form, the thorough one has the word.
fn build(json: &str, added: &[AddedToken]) -> Result<PipelineTokenizer, Fault> {
    let thoroughly = |_| tokenizers::from_json(&tokenizers::canonicalize_str(json)?);
    let pipeline =
        tokenizers::from_json(json).or_else(thoroughly).map_err(|error| broken(&error))?;
    check_ids(&pipeline, added)?;
    Ok(pipeline)
}

/// Special tokens must have no rules about the text around them, as that is cut away from them before
/// it is tokenised.
fn check_special(added: &[AddedToken]) -> Result<(), Fault> {
    let has_rules =
        |token: &&AddedToken| token.special && (token.lstrip || token.rstrip || token.single_word);
    let Some(AddedToken { content, .. }) = added.iter().find(has_rules) else { return Ok(()) };
    let reason = format!("the special token `{content}` has rules about the text around it");
    Err((reason, "set its lstrip, rstrip and single_word to false"))
}

/// Added tokens must have the ids that the file gives them.
fn check_ids(pipeline: &PipelineTokenizer, added: &[AddedToken]) -> Result<(), Fault> {
    for AddedToken { id, content, .. } in added {
        if pipeline.get_added_vocabulary().token_to_id(content) != Some(*id) {
            let reason = format!("the id {id} of the added token `{content}` leaves a gap");
            return Err((reason, "number the added tokens on from the vocabulary"));
        }
    }
    Ok(())
}

fn ids(specials: &Specials, pad: Option<&str>) -> Result<Ids, Fault> {
    const HINT: &str = "use the tokenizer of a Qwen vision-language model";
    let id = |token: &str| {
        let missing = || (format!("it has no special token `{token}`"), HINT);
        specials.id(token).ok_or_else(missing)
    };
    Ok(Ids {
        turn_start: id("<|im_start|>")?,
        turn_end: id("<|im_end|>")?,
        image_pad: id("<|image_pad|>")?,
        vision_start: id("<|vision_start|>")?,
        vision_end: id("<|vision_end|>")?,
        video_pad: id("<|video_pad|>")?,
        pad: id(pad.unwrap_or("<|endoftext|>"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::mark_trained;
    use super::super::turns::Lesson;
    use super::*;

    #[test]
    fn an_excerpt_gives_the_same_tokens_lengths_and_lessons() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.setup/models/qwen3-vl");
        let opened =
            open(&Path::new(folder).join("tokenizer.json")).expect("run `make setup` first");
        let source = read(opened).unwrap();
        let whole = tokenizers::from_json(&source.json).unwrap();
        let options = options();
        for text in [
            "<think>\nIt is a cat.\n</think>\n\nA cat, \"asleep\" \\ 1234.",
            "cafe\u{301} <tool_call>日本語</tool_call> cafe\u{301}s <|im_end|> e\u{301}",
        ] {
            let excerpt = source.excerpt([text].into_iter(), &options).unwrap();
            let cuts: Vec<usize> =
                text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let ranges = cuts.windows(4).step_by(7).map(|cuts| cuts[0]..cuts[2]);
            let ranges = ranges.chain(std::iter::once(cuts[cuts.len() - 3]..text.len())).collect();
            let lesson = Lesson::Parts(ranges);
            let of = |of| {
                let tables = Tables { of, options: &options };
                let (mut tokens, mut trained) = (Vec::new(), Vec::new());
                tables.encode(text, &mut tokens).unwrap();
                mark_trained(&tables, text, &tokens, &lesson, &mut trained).unwrap();
                let known = tokens.iter().map(|it| (tables.id(*it), tables.byte_length(*it)));
                (known.collect::<Vec<_>>(), trained)
            };
            let expected = of(Of::Whole(&whole));
            assert!(expected.1.contains(&true) && expected.1.contains(&false));
            assert_eq!(of(Of::Excerpt(excerpt)), expected, "{text:?}");
        }
    }
}
