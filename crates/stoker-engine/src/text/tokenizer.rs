//! The tokenizer: a byte-level BPE from `tokenizer.json`, and the ids of the tokens that conversations
//! are built of, found by their text.
//!
//! Making the library's tables of a vocabulary takes longer than anything else that a loader does
//! before its first batch, so it is done on a thread of its own, while datasets are opened and first
//! requests are on their way. All that the file itself says is looked at before: what comes out only
//! when the tables are made is a vocabulary that does not fit its merges.

use std::fs;
use std::path::{Path, PathBuf};

use tokenizers::ConvertError;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};

use super::building::Building;
use super::canonical::{self, AddedToken, Canonical};
use super::files::{Sources, TOKENIZER, problem};
use super::specials::Specials;
use crate::error::{Error, Flaw, Result};
use crate::metrics::Room;

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

/// What is wrong with a file, and what to do.
type Fault = (String, &'static str);

/// A tokenizer.
pub(super) struct Tokenizer {
    pipeline: Building<Result<PipelineTokenizer, Fault>>,
    path: PathBuf,
    options: EncodeOptions,
    pub(super) specials: Specials,
    pub(super) ids: Ids,
    /// Of all that decides its tokens.
    pub(super) hash: u64,
}

impl Tokenizer {
    /// Reads a tokenizer, and begins to build it.
    pub(super) fn open(sources: &Sources) -> Result<Self> {
        let path = &sources.tokenizer;
        let Canonical { json, added_tokens, is_byte_level_bpe } =
            read(path).map_err(|error| faulty(path, &broken(&error)))?;
        if !is_byte_level_bpe {
            let hint = "stoker reads the byte-level BPE tokenizers of the Qwen families";
            return Err(faulty(path, &("not a byte-level BPE".to_owned(), hint)));
        }
        let special = added_tokens.iter().filter(|token| token.special);
        let special = special.map(|token| (token.content.clone(), token.id));
        let specials = Specials::new(special.collect());
        let ids = ids(&specials, sources.named_token("pad_token"))
            .map_err(|fault| faulty(path, &fault))?;
        // Pieces hold no special tokens of the template's, and what looks like one is text.
        let options = EncodeOptions {
            encode_special_tokens: true,
            truncation: Override::Off,
            padding: Override::Off,
            ..EncodeOptions::no_specials()
        };
        let hash = xxhash_rust::xxh3::xxh3_64(json.as_bytes());
        let build = move || build(&json, &added_tokens);
        let pipeline = Building::start("stoker-tokenizer", build)
            .map_err(|error| Error::no_thread("stoker-tokenizer", &error))?;
        Ok(Self { pipeline, path: path.clone(), options, specials, ids, hash })
    }

    /// Waits until it is built.
    pub(super) fn built(&self) -> Result<()> {
        self.pipeline.wait().as_ref().map(drop).map_err(|fault| faulty(&self.path, fault))
    }

    fn pipeline(&self) -> Result<&PipelineTokenizer, Flaw> {
        let flaw =
            |(reason, hint): &Fault| Flaw::new(Room::Text, "tokenizer", reason.clone()).hint(hint);
        self.pipeline.wait().as_ref().map_err(flaw)
    }

    /// Appends the tokens of a piece of plain text.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<PipelineToken>) -> Result<(), Flaw> {
        self.pipeline()?.encode_into(text, &self.options, tokens).map_err(|error| {
            Flaw::new(Room::Text, "tokenizer", format!("the tokenizer can't encode this: {error}"))
        })
    }

    /// How many bytes of (normalised) text a token stands for. The model spells its tokens with one
    /// letter per byte, added tokens are spelt as they are.
    pub(super) fn byte_length(&self, token: PipelineToken) -> Result<usize, Flaw> {
        let (id, pipeline) = (token.id(), self.pipeline()?);
        let added = pipeline.get_added_vocabulary().simple_id_to_token(id);
        let learned =
            || pipeline.get_model().id_to_token(id).map_or(0, |text| text.chars().count());
        Ok(added.map_or_else(learned, |text| text.len()))
    }

    /// The text of a token, for people: a part of a character shows as a replacement character.
    pub(super) fn text(&self, token: u32) -> String {
        let decode = |pipeline: &PipelineTokenizer| pipeline.decode(&[token], false).ok();
        self.pipeline().ok().and_then(decode).unwrap_or_default()
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("ids", &self.ids).finish_non_exhaustive()
    }
}

fn faulty(path: &Path, (reason, hint): &Fault) -> Error {
    Error::Recipe(vec![problem(TOKENIZER, path, reason, hint)])
}

fn broken(error: &tokenizers::Error) -> Fault {
    (format!("not a tokenizer ({error})"), "get the file anew")
}

fn read(path: &Path) -> tokenizers::Result<Canonical> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConvertError::Io { path: path.to_owned(), source })?;
    canonical::quick(&text).map_or_else(|| canonical::thorough(&text), Ok)
}

/// Builds what a file says. Where that can't be done of the quick form, the thorough one has the word.
fn build(json: &str, added: &[AddedToken]) -> Result<PipelineTokenizer, Fault> {
    let thoroughly = |_| tokenizers::from_json(&canonical::thorough(json)?.json);
    let pipeline =
        tokenizers::from_json(json).or_else(thoroughly).map_err(|error| broken(&error))?;
    check(&pipeline, added)?;
    Ok(pipeline)
}

/// Special tokens must have the ids that the file gives them, and no rules of their own about the
/// text around them, as that is cut away from them before it is tokenised.
fn check(pipeline: &PipelineTokenizer, added: &[AddedToken]) -> Result<(), Fault> {
    for token in added {
        let AddedToken { id, content, .. } = token;
        if pipeline.get_added_vocabulary().token_to_id(content) != Some(*id) {
            let reason = format!("the id {id} of the added token `{content}` leaves a gap");
            return Err((reason, "number the added tokens on from the vocabulary"));
        }
        if token.special && (token.lstrip || token.rstrip || token.single_word) {
            let reason =
                format!("the special token `{content}` has rules about the text around it");
            return Err((reason, "set its lstrip, rstrip and single_word to false"));
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
