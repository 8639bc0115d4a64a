//! The tokenizer: a byte-level BPE from `tokenizer.json`, and the ids of the tokens that conversations
//! are built of, found by their text.

use serde::Deserialize;
use tokenizers::pipeline::{
    EncodeOptions, Override, PipelineModel, PipelineToken, PipelineTokenizer,
};

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

/// A tokenizer.
pub(super) struct Tokenizer {
    pipeline: PipelineTokenizer,
    options: EncodeOptions,
    pub(super) specials: Specials,
    pub(super) ids: Ids,
    /// Of all that decides its tokens.
    pub(super) hash: u64,
}

#[derive(Deserialize)]
struct TokenizerJson {
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields are the file's")]
struct AddedToken {
    id: u32,
    content: String,
    special: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
}

impl Tokenizer {
    pub(super) fn open(sources: &Sources) -> Result<Self> {
        let path = &sources.tokenizer;
        Self::read(sources)
            .map_err(|(reason, hint)| Error::Recipe(vec![problem(TOKENIZER, path, &reason, hint)]))
    }

    fn read(sources: &Sources) -> Result<Self, (String, &'static str)> {
        let broken = |error: String| (format!("not a tokenizer ({error})"), "get the file anew");
        let canonical = tokenizers::canonicalize_file(&sources.tokenizer)
            .map_err(|error| broken(error.to_string()))?;
        let pipeline =
            tokenizers::from_json(&canonical).map_err(|error| broken(error.to_string()))?;
        let json: TokenizerJson =
            serde_json::from_str(&canonical).map_err(|error| broken(error.to_string()))?;
        let is_byte_level =
            matches!(pipeline.get_model(), PipelineModel::BPE(model) if model.is_byte_level());
        if !is_byte_level {
            let hint = "stoker reads the byte-level BPE tokenizers of the Qwen families";
            return Err(("not a byte-level BPE".to_owned(), hint));
        }
        check(&pipeline, &json.added_tokens)?;
        let special = json.added_tokens.into_iter().filter(|token| token.special);
        let specials = Specials::new(special.map(|token| (token.content, token.id)).collect());
        let ids = ids(&specials, sources.named_token("pad_token"))?;
        // Pieces hold no special tokens of the template's, and what looks like one is text.
        let options = EncodeOptions {
            encode_special_tokens: true,
            truncation: Override::Off,
            padding: Override::Off,
            ..EncodeOptions::no_specials()
        };
        let hash = xxhash_rust::xxh3::xxh3_64(canonical.as_bytes());
        Ok(Self { pipeline, options, specials, ids, hash })
    }

    /// Appends the tokens of a piece of plain text.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<PipelineToken>) -> Result<(), Flaw> {
        self.pipeline.encode_into(text, &self.options, tokens).map_err(|error| {
            Flaw::new(Room::Text, "tokenizer", format!("the tokenizer can't encode this: {error}"))
        })
    }

    /// How many bytes of (normalised) text a token stands for. The model spells its tokens with one
    /// letter per byte, added tokens are spelt as they are.
    pub(super) fn byte_length(&self, token: PipelineToken) -> usize {
        let id = token.id();
        let added = self.pipeline.get_added_vocabulary().simple_id_to_token(id);
        let learned =
            || self.pipeline.get_model().id_to_token(id).map_or(0, |text| text.chars().count());
        added.map_or_else(learned, |text| text.len())
    }

    /// The text of a token, for people: a part of a character shows as a replacement character.
    pub(super) fn text(&self, token: u32) -> String {
        self.pipeline.decode(&[token], false).unwrap_or_default()
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// Special tokens must have the ids that the file gives them, and no rules of their own about the
/// text around them, as that is cut away from them before it is tokenised.
fn check(pipeline: &PipelineTokenizer, added: &[AddedToken]) -> Result<(), (String, &'static str)> {
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

fn ids(specials: &Specials, pad: Option<&str>) -> Result<Ids, (String, &'static str)> {
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
