//! Tables for one text: an excerpt of a tokenizer, for as long as the whole is being built.
//!
//! Byte-pair encoding begins with single letters and puts neighbours together, so whatever it makes
//! on its way is a part of the text. A merge whose result is no part of it can't happen, and leaving
//! it out changes nothing. What is left for one conversation is a hundredth, which the library makes
//! tables of in milliseconds; of all of it, in a good part of a second. So the first batch need not
//! wait for the whole.
//!
//! What [`parts`](super::parts) takes for a part of the text need not be one, which costs a little time and
//! changes nothing either.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use tokenizers::pipeline::{EncodeOptions, PipelineToken, PipelineTokenizer};

use super::canonical::{AddedToken, Canonical, Tables};
use super::lexicon::Lexicon;
use super::parts::Parts;

/// Bytes of texts, as the file would spell them, beyond which so much of the tokenizer would be in their
/// excerpt that waiting for the whole is no worse.
const MOST_BYTES: usize = 1 << 18;

/// So many merges, the most common ones, are in every excerpt. Texts have most of them anyway, and with few
/// keys the library's way to a perfect hash takes many turns, and complains of each on stderr.
const COMMON: usize = 1000;

/// Stands between texts, and where they hold what is not of the vocabulary. JSON has none of it.
const BETWEEN: u8 = 0;

/// A tokenizer's file, to be made excerpts of.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) json: String,
    pub(super) added_tokens: Vec<AddedToken>,
    tables: Option<Tables>,
    index: OnceLock<Option<Index>>,
}

/// What is in the file.
struct Index {
    lexicon: Lexicon,
    /// A tokenizer of the letters alone: what it makes of a text is how the whole spells it.
    speller: Excerpt,
}

/// A tokenizer with a part of the vocabulary, and the whole's ids of its tokens.
pub(super) struct Excerpt {
    pub(super) pipeline: PipelineTokenizer,
    ids: Vec<u32>,
}

impl Source {
    pub(super) fn new(canonical: Canonical) -> Self {
        let Canonical { json, added_tokens, tables, .. } = canonical;
        Self { json, added_tokens, tables, index: OnceLock::new() }
    }

    /// What is in the file; nothing where that is not plain, and the whole has the word about it.
    fn index(&self) -> Option<&Index> {
        let index = || {
            let lexicon = Lexicon::of(&self.json, self.tables.as_ref()?, &self.added_tokens)?;
            let speller = self.make(&lexicon, &[])?;
            Some(Index { lexicon, speller })
        };
        self.index.get_or_init(index).as_ref()
    }

    /// Gets ready for excerpts.
    pub(super) fn prepare(&self) {
        self.index();
    }

    /// What gives the tokens that the whole gives for these texts; nothing where the whole is to be
    /// waited for.
    pub(super) fn excerpt<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
        options: &EncodeOptions,
    ) -> Option<Excerpt> {
        let Index { lexicon, speller } = self.index()?;
        let (mut spelt, mut tokens) = (Vec::new(), Vec::new());
        for text in texts {
            tokens.clear();
            speller.pipeline.encode_into(text, options, &mut tokens).ok()?;
            for token in tokens.iter().map(|token| token.id() as usize) {
                if token < lexicon.letters() {
                    spelt.extend_from_slice(lexicon.spelling(&self.json, token).as_bytes());
                } else {
                    spelt.push(BETWEEN);
                }
            }
            spelt.push(BETWEEN);
            if spelt.len() > MOST_BYTES {
                return None;
            }
        }
        let merges = lexicon.merges_of(&self.json, &Parts::of(&spelt), COMMON);
        self.make(lexicon, &merges)
    }

    /// A tokenizer of the letters and of these merges, with all else that the file says. Its tokens are
    /// numbered as they come, as the library gives added ones the numbers behind them.
    fn make(&self, lexicon: &Lexicon, merges: &[usize]) -> Option<Excerpt> {
        let tables = self.tables.as_ref()?;
        let made = merges.iter().map(|merge| lexicon.letters() + merge);
        let tokens: Vec<_> = (0..lexicon.letters()).chain(made).collect();
        let mut json = self.json[..tables.vocab.start].to_owned();
        let mut comma = "{\"";
        for (number, token) in tokens.iter().enumerate() {
            json.extend([comma, lexicon.spelling(&self.json, *token), "\":", &number.to_string()]);
            comma = ",\"";
        }
        json.extend(["}", &self.json[tables.vocab.end..tables.merges.start], "["]);
        let mut comma = "[\"";
        for merge in merges {
            let [left, right] = lexicon.sides(&self.json, *merge);
            json.extend([comma, left, "\",\"", right, "\"]"]);
            comma = ",[\"";
        }
        json.extend(["]", &self.json[tables.merges.end..]]);
        // What it panics over is none of a sample's faults.
        let built = catch_unwind(AssertUnwindSafe(|| tokenizers::from_json(&json)));
        let pipeline = built.ok()?.ok()?;
        let mut ids: Vec<_> = tokens.into_iter().map(|token| lexicon.id(token)).collect();
        let mut added: Vec<_> = self.added_tokens.iter().collect();
        added.sort_by_key(|token| token.id);
        for AddedToken { id, content, .. } in added {
            let place = pipeline.get_added_vocabulary().token_to_id(content)?;
            if place as usize != ids.len() {
                return None;
            }
            ids.push(*id);
        }
        Some(Excerpt { pipeline, ids })
    }
}

impl Excerpt {
    /// The whole's number of a token.
    pub(super) fn id(&self, token: PipelineToken) -> u32 {
        self.ids[token.id() as usize]
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("letters", &self.lexicon.letters()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
