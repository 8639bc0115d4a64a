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
            let letters: Vec<_> = (0..lexicon.letters()).collect();
            let speller = self.make(&lexicon, &letters, &[])?;
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
        let (tokens, merges) = lexicon.parts_of(&self.json, &Parts::of(&spelt), COMMON);
        self.make(lexicon, &tokens, &merges)
    }

    /// A tokenizer of these tokens and merges, with all else that the file says. Its tokens are
    /// numbered as they come, as the library gives added ones the numbers behind them.
    fn make(&self, lexicon: &Lexicon, tokens: &[usize], merges: &[usize]) -> Option<Excerpt> {
        let tables = self.tables.as_ref()?;
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
        let mut ids: Vec<_> = tokens.iter().map(|token| lexicon.id(*token)).collect();
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
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::text::canonical::Opened;

    fn options() -> EncodeOptions {
        EncodeOptions::no_specials()
    }

    const TEXTS: [&str; 10] = [
        "",
        "a",
        "What is in this picture? The cat's asleep, isn't it?\n\nIt's 12345.678 – or so.",
        "<think>\nLet me see\n</think>\n\n<tool_call>{\"name\": \"look\", \"at\": [1]}</tool_call>",
        "fn main() {\n    let path = r\"C:\\temp\\\";\r\n\t\tprintln!(\"{path:?}\");\n}\n     \n",
        "今日はいい天気ですね。 안녕하세요 مرحبا",
        "cafe\u{301} and caf\u{e9}, A\u{30a}ngstro\u{308}m",
        "\u{1f469}\u{200d}\u{1f4bb}\u{1f1eb}\u{1f1f7} \u{0} \u{7f} \u{a0}\u{2003}\u{feff} \u{fffd}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa================================########",
        "The quick brown fox jumps over the lazy dog, and antidisestablishmentarianism over both",
    ];

    fn file(model: &str) -> String {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.setup/models");
        std::fs::read_to_string(models.join(model).join("tokenizer.json"))
            .expect("run `make setup` first")
    }

    fn source(file: &str) -> Source {
        let opened = Opened::new(file.to_owned()).expect("the file is in no way broken");
        Source::new(opened.canonical().unwrap())
    }

    fn lexicon(source: &Source) -> &Lexicon {
        &source.index().expect("the file is plain").lexicon
    }

    fn tokens(pipeline: &PipelineTokenizer, text: &str) -> Vec<PipelineToken> {
        let mut tokens = Vec::new();
        pipeline.encode_into(text, &options(), &mut tokens).unwrap();
        tokens
    }

    /// The excerpt for these texts gives what the whole gives for each of them.
    fn hold(source: &Source, whole: &PipelineTokenizer, texts: &[&str]) -> Excerpt {
        let excerpt = source.excerpt(texts.iter().copied(), &options()).expect("it can be made");
        for text in texts {
            let found = tokens(&excerpt.pipeline, text).into_iter().map(|token| excerpt.id(token));
            let expected = tokens(whole, text).into_iter().map(PipelineToken::id);
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{text:?}");
        }
        excerpt
    }

    #[test]
    fn an_excerpt_gives_the_tokens_of_the_whole() {
        for model in ["qwen3-vl", "qwen2.5-vl"] {
            let source = source(&file(model));
            let whole = tokenizers::from_json(&source.json).unwrap();
            for text in TEXTS {
                hold(&source, &whole, &[text]);
            }
            let together = hold(&source, &whole, &TEXTS);
            let all = lexicon(&source).len();
            assert!(together.ids.len() * 20 < all, "{} of {all}", together.ids.len());
        }
    }

    #[test]
    fn the_least_excerpt_has_the_common_merges() {
        let source = source(&file("qwen3-vl"));
        let whole = tokenizers::from_json(&source.json).unwrap();
        let least = hold(&source, &whole, &[" the"]);
        let letters = lexicon(&source).letters();
        let count = least.ids.len() - source.added_tokens.len();
        assert!((letters + COMMON..letters + COMMON + 20).contains(&count), "{count}");
    }

    #[test]
    fn an_excerpt_gives_the_tokens_of_the_whole_for_its_own_words_cut_anyhow() {
        let source = source(&file("qwen3-vl"));
        let whole = tokenizers::from_json(&source.json).unwrap();
        let word = (0..lexicon(&source).len() as u32, 0..3_usize, 0..4_usize);
        let words = prop::collection::vec((word, r#"[ \n'"\\7\x{301}é]?"#), 1..40);
        proptest!(ProptestConfig::with_cases(200), |(words in words)| {
            let mut text = String::new();
            for ((id, from, less), between) in words {
                let word = whole.decode(&[id], false).unwrap();
                let count = word.chars().count().saturating_sub(less);
                text.extend(word.chars().take(count).skip(from));
                text += &between;
            }
            hold(&source, &whole, &[&text]);
        });
    }

    /// The rules of the real file, with its letters, and two merges.
    fn small(change: impl FnOnce(&mut Value)) -> String {
        let mut file: Value = serde_json::from_str(&file("qwen3-vl")).unwrap();
        let all = file["model"]["vocab"].as_object().unwrap().keys();
        let letters = all.filter(|token| token.chars().count() == 1).map(String::as_str);
        let numbered = letters.chain(["in", "ing"]).zip(0..);
        let vocab: Map<_, _> = numbered.map(|(token, id)| (token.to_owned(), json!(id))).collect();
        for (token, id) in
            file["added_tokens"].as_array_mut().unwrap().iter_mut().zip(vocab.len()..)
        {
            token["id"] = json!(id);
        }
        file["model"]["merges"] = json!([["i", "n"], ["in", "g"]]);
        file["model"]["vocab"] = Value::Object(vocab);
        change(&mut file);
        file.to_string()
    }

    #[test]
    fn an_excerpt_of_a_small_tokenizer_does_as_the_whole_does() {
        let source = source(&small(|_| ()));
        let whole = tokenizers::from_json(&source.json).unwrap();
        let excerpt = hold(&source, &whole, &["singing", "in <think>ing</think>"]);
        assert_eq!(tokens(&excerpt.pipeline, "singing").len(), 3);
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_whole() {
        type Change = fn(&mut Value);
        fn put(file: &mut Value, token: &str, id: usize) {
            file["model"]["vocab"][token] = json!(id);
        }
        fn move_added(file: &mut Value, by: u64) {
            for token in file["added_tokens"].as_array_mut().unwrap() {
                token["id"] = json!(token["id"].as_u64().unwrap() + by);
            }
        }
        let excerpt = |file: &str| source(file).excerpt(["singing"].into_iter(), &options());
        let changes: [(&str, Change); 13] = [
            ("a suffix", |file| file["model"]["end_of_word_suffix"] = json!("</w>")),
            ("a prefix", |file| file["model"]["continuing_subword_prefix"] = json!("##")),
            ("no pairs", |file| file["model"]["merges"] = json!([["i"], ["n", "in", "g"]])),
            ("a half", |file| file["model"]["merges"] = json!([["i", "n"], ["in"]])),
            ("a merge that is used before it is there", |file| {
                file["model"]["merges"] = json!([["in", "g"], ["i", "n"]]);
            }),
            ("two merges that make the same", |file| {
                put(file, "ng", 258);
                move_added(file, 1);
                file["model"]["merges"] = json!([["i", "n"], ["in", "g"], ["n", "g"], ["i", "ng"]]);
            }),
            ("a merge of what is not there", |file| {
                file["model"]["merges"] = json!([["i", "n"], ["in", "gs"]]);
            }),
            ("a merge that makes what is not there", |file| {
                file["model"]["merges"] = json!([["i", "n"], ["in", "s"]]);
            }),
            ("a letter of no byte", |file| {
                put(file, "日本", 258);
                move_added(file, 1);
            }),
            ("a token that stands for no byte at all", |file| {
                put(file, "", 258);
                move_added(file, 1);
            }),
            ("one number for two", |file| put(file, "in", 257)),
            ("a number left out", |file| {
                put(file, "sin", 259);
                move_added(file, 2);
            }),
            ("a gap before the added tokens", |file| move_added(file, 1)),
        ];
        let count = source(&small(|_| ())).index().unwrap().lexicon.len();
        assert_eq!(count, 258, "numbers above follow from it");
        for (name, change) in changes {
            assert!(excerpt(&small(change)).is_none(), "{name}");
        }
        let plain = small(|_| ());
        for (from, to) in [
            (r#"["i","#, r#"["\u0069","#),
            (r#""in":"#, r#""ing":"#),
            (r#""in":256"#, r#""in":256.0"#),
        ] {
            let respelt = plain.replacen(from, to, 1);
            assert_ne!(respelt, plain);
            assert!(excerpt(&respelt).is_none(), "{to}");
        }
    }

    #[test]
    fn a_long_text_is_left_to_the_whole() {
        let source = source(&small(|_| ()));
        let most = "i".repeat(MOST_BYTES - 1);
        assert!(source.excerpt([most.as_str()].into_iter(), &options()).is_some());
        assert!(source.excerpt([most.as_str(), "i"].into_iter(), &options()).is_none());
    }
}
