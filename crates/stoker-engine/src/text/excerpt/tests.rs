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
    for (token, id) in file["added_tokens"].as_array_mut().unwrap().iter_mut().zip(vocab.len()..) {
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
    let changes: [(&str, Change); 17] = [
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
        ("tokens in another order than their merges", |file| {
            file["model"]["vocab"].as_object_mut().unwrap().shift_remove("in");
            put(file, "in", 256);
        }),
        ("a token that no merge makes", |file| {
            put(file, "ng", 258);
            move_added(file, 1);
        }),
        ("a merge left over", |file| {
            file["model"]["merges"] = json!([["i", "n"], ["in", "g"], ["in", "g"]]);
        }),
        ("no merges", |file| file["model"]["merges"] = json!([])),
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
    for (from, to) in
        [(r#"["i","#, r#"["\u0069","#), (r#""in":"#, r#""ing":"#), (r#""in":256"#, r#""in":256.0"#)]
    {
        let respelt = plain.replacen(from, to, 1);
        assert_ne!(respelt, plain);
        assert!(excerpt(&respelt).is_none(), "{to}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// What is taken for plain after all does as the whole does.
    #[test]
    fn tables_that_are_damaged_anyhow_are_left_to_the_whole_or_do_as_it_does(
        places in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        pieces in prop::collection::vec(
            prop::sample::select(&["\"", ",", "[", "]", "{", "}", ":", "\\", "i", "n", "g", "0", "9", "Ġ", "é", ""][..]),
            4,
        ),
    ) {
        let canonical = Opened::new(small(|_| ())).unwrap().canonical().unwrap();
        let Canonical { mut json, added_tokens, tables, .. } = canonical;
        let mut tables = tables.unwrap();
        for (place, piece) in places.into_iter().zip(pieces) {
            // In the last tokens or in the merges, so that both are met.
            let from = tables.vocab.end - 40;
            let mut at = from + place.index(tables.merges.end - from);
            while !json.is_char_boundary(at) {
                at -= 1;
            }
            let length = json[at..].chars().next().unwrap().len_utf8();
            json.replace_range(at..at + length, piece);
            let moved = |end: &mut usize| {
                if at < *end {
                    *end = *end + piece.len() - length;
                }
            };
            [&mut tables.vocab.end, &mut tables.merges.start, &mut tables.merges.end]
                .into_iter()
                .for_each(moved);
        }
        let tables = Some(tables);
        let source = Source { json, added_tokens, tables, index: OnceLock::new() };
        let text = "singing 9in";
        if let Some(excerpt) = source.excerpt([text].into_iter(), &options()) {
            let found = tokens(&excerpt.pipeline, text).into_iter().map(|it| excerpt.id(it));
            let whole = tokenizers::from_json(&source.json).expect("it can be built");
            let expected = tokens(&whole, text).into_iter().map(PipelineToken::id);
            prop_assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_long_text_is_left_to_the_whole() {
    let source = source(&small(|_| ()));
    let most = "i".repeat(MOST_BYTES - 1);
    assert!(source.excerpt([most.as_str()].into_iter(), &options()).is_some());
    assert!(source.excerpt([most.as_str(), "i"].into_iter(), &options()).is_none());
}
