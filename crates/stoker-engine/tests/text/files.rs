//! The model folder: what is found in it, and what is said when it is not.

use std::time::Duration;

use stoker_engine::loader::{Loader, Next};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;

use super::*;

#[test]
fn tokens_have_text_and_padding_is_the_settings_pad_token() {
    assert_eq!(qwen3().pad_token(), 151_643);
    assert_eq!(qwen3().token_text(NEWLINE), "\n");
    assert_eq!(qwen3().token_text(IM_END), "<|im_end|>");
    assert_eq!(qwen3().token_text(u32::MAX), "");
}

// ── the files ────────────────────────────────────────────────

fn problems(result: Result<Encoder, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Recipe(problems) if problems.iter().all(|p| p.hint.is_some())));
    error.to_string()
}

#[test]
fn files_that_are_missing_or_broken_are_all_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let default = recipe::Text::default();
    let open = || Encoder::open(Some(folder.path()), &default, None);

    let text = problems(Encoder::open(None, &default, None));
    assert!(text.contains("2 problems"), "{text}");
    let text = problems(open());
    assert!(text.contains("text.tokenizer: there is no such file"), "{text}");
    assert!(text.contains("text.chat-template: there is no chat_template.jinja"), "{text}");
    assert!(text.contains(&folder.path().display().to_string()), "{text}");

    std::fs::write(path("tokenizer.json"), "{}").unwrap();
    std::fs::write(path("tokenizer_config.json"), r#"{"chat_template": 1}"#).unwrap();
    let text = problems(open());
    assert!(text.contains("neither a string nor a list"), "{text}");
    std::fs::write(path("chat_template.jinja"), "x").unwrap();
    let text = problems(open());
    assert!(text.contains("not a tokenizer"), "{text}");
    std::fs::write(path("tokenizer_config.json"), "[").unwrap();
    let text = problems(open());
    assert!(text.contains("not a JSON object"), "{text}");
}

#[test]
fn templates_that_do_not_write_qwens_turns_are_refused_when_opened() {
    for (template, expected) in [
        ("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}", "does not write"),
        ("{% for m in messages %}", "unexpected end of input"),
        ("{{ raise_exception('not today') }}", "not today"),
    ] {
        let text = problems(with_template(template));
        assert!(text.contains("text.chat-template") && text.contains(expected), "{text}");
    }
}

#[test]
fn a_template_is_found_in_each_place_where_models_keep_it() {
    let template = std::fs::read_to_string(model("qwen3_vl").join("chat_template.jinja")).unwrap();
    let other =
        json!([{"name": "rag", "template": "x"}, {"name": "default", "template": template}]);
    for (name, value) in [("chat_template.json", json!(template)), ("tokenizer_config.json", other)]
    {
        let folder = tempfile::tempdir().unwrap();
        let settings = json!({"chat_template": value, "pad_token": {"content": "<|im_end|>"}});
        std::fs::write(folder.path().join(name), settings.to_string()).unwrap();
        let tokenizer = model("qwen3_vl").join("tokenizer.json");
        let tokenizer = Some(tokenizer.display().to_string());
        let config = recipe::Text { tokenizer, ..Default::default() };
        let encoder = Encoder::open(Some(folder.path()), &config, None).unwrap();
        let encode = |encoder: &Encoder| encoder.encode(&talk(), &[], 2).unwrap();
        assert_eq!(encode(&encoder), encode(qwen3()), "{name}");
    }
}

// ── the tokenizer's file ─────────────────────────────────────

/// The real settings and template beside a small tokenizer of letters, with one merge.
fn small(change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(model("qwen3_vl").join("tokenizer.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let letters = file["model"]["vocab"].as_object().unwrap().iter();
    let letters = letters.filter(|(token, _)| token.chars().count() == 1 || *token == "in");
    let vocab = letters.zip(0..).map(|((token, _), id)| (token.clone(), json!(id)));
    let vocab: Map<String, Value> = vocab.collect();
    for (token, id) in file["added_tokens"].as_array_mut().unwrap().iter_mut().zip(vocab.len()..) {
        token["id"] = json!(id);
    }
    file["model"]["merges"] = json!([["i", "n"]]);
    file["model"]["vocab"] = Value::Object(vocab);
    change(&mut file);
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    for name in ["tokenizer_config.json", "chat_template.jinja", "preprocessor_config.json"] {
        std::fs::copy(model("qwen3_vl").join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn open_small(folder: &tempfile::TempDir) -> Result<Encoder, Error> {
    Encoder::open(Some(folder.path()), &recipe::Text::default(), None)
}

#[test]
fn what_a_tokenizer_can_not_be_is_told_when_it_is_opened() {
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 4] = [
        (|file| file["added_tokens"][1]["lstrip"] = json!(true), "has rules about the text"),
        (|file| file["model"]["type"] = json!("WordPiece"), "needs a BPE model, found WordPiece"),
        (|file| file["pre_tokenizer"] = json!(null), "not a byte-level BPE"),
        (
            |file| file["added_tokens"].as_array_mut().unwrap().truncate(1),
            "it has no special token `<|im_start|>`",
        ),
    ];
    for (change, expected) in changes {
        let text = problems(open_small(&small(change)));
        assert!(text.contains("text.tokenizer") && text.contains(expected), "{text}");
    }
}

#[test]
fn what_merges_can_not_be_is_told_when_they_are_read() {
    let encoder = open_small(&small(|file| file["model"]["merges"] = json!(["a b c"]))).unwrap();
    let expected = "does not split into exactly two";
    let text = problems(encoder.identity().map(|_| open_small(&small(|_| ())).unwrap()));
    assert!(text.contains("text.tokenizer") && text.contains(expected), "{text}");
    let text = problems(encoder.built().map(|()| encoder));
    assert!(text.contains("text.tokenizer") && text.contains(expected), "{text}");
}

#[test]
fn a_vocabulary_that_does_not_fit_its_merges_is_told_when_it_is_built() {
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 3] = [
        (
            |file| file["model"]["merges"] = json!([["i", "nn"]]),
            "not a tokenizer (Token `nn` out of vocabulary)",
        ),
        (
            |file| {
                file["model"]["vocab"].as_object_mut().unwrap().shift_remove("a").unwrap();
            },
            "not a tokenizer (This byte-level vocabulary has no token for bytes",
        ),
        (|file| file["added_tokens"][3]["id"] = json!(9_999), "leaves a gap"),
    ];
    for (change, expected) in changes {
        let encoder = open_small(&small(change)).unwrap();
        let text = problems(encoder.built().map(|()| encoder));
        assert!(text.contains("text.tokenizer") && text.contains(expected), "{text}");
    }
}

#[test]
fn no_batch_comes_of_a_tokenizer_that_can_not_be_built_and_no_sample_is_blamed() {
    type Change = fn(&mut Value);
    let changes: [Change; 3] = [
        |file| file["model"]["merges"] = json!([["i", "nn"]]),
        |file| file["model"]["merges"] = json!(["a b c"]),
        |file| file["added_tokens"][3]["id"] = json!(9_999),
    ];
    let data = tempfile::tempdir().unwrap();
    let chats = data.path().join("chats.jsonl");
    let turn = |role: &str, text: &str| json!({"role": role, "content": text});
    let chat = json!({"messages": [turn("user", "singing"), turn("assistant", "in")]});
    std::fs::write(&chats, format!("{chat}\n").repeat(4)).unwrap();
    let next = |folder: &tempfile::TempDir| {
        let recipe = json!({
            "model": folder.path(),
            "dataset": {"source": &chats, "index-dir": data.path().join("index")},
            "pack": {"batch-size": 1},
        });
        let loader = Loader::open(Recipe::from_value(recipe).unwrap(), Rank { index: 0, of: 1 })?;
        loop {
            match loader.next(Duration::from_mins(1))? {
                Next::Waiting => {}
                Next::Batch(batch) => return Ok(batch.sequence()),
                Next::End => panic!("there are samples"),
            }
        }
    };
    assert_eq!(next(&small(|_| ())).unwrap(), 0);
    for change in changes {
        let error: Error = next(&small(change)).unwrap_err();
        assert!(matches!(error, Error::Recipe(_)), "{error}");
        assert!(error.to_string().contains("text.tokenizer"), "{error}");
    }
}

#[test]
fn a_sample_for_a_tokenizer_that_can_not_be_built_is_refused_and_does_not_panic() {
    let encoder =
        open_small(&small(|file| file["model"]["merges"] = json!([["i", "nn"]]))).unwrap();
    encoder.built().unwrap_err();
    let flaw = encoder.encode(&talk(), &[], 2).unwrap_err();
    assert_eq!(flaw.code, "tokenizer");
    assert!(flaw.reason.contains("out of vocabulary"), "{}", flaw.reason);
}

#[test]
fn a_tokenizer_is_known_by_what_it_says_and_not_by_how_its_file_is_laid_out() {
    let pairs = open_small(&small(|_| ())).unwrap();
    let strings = small(|file| file["model"]["merges"] = json!(["i n"]));
    let path = strings.path().join("tokenizer.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    std::fs::write(&path, serde_json::to_string_pretty(&file).unwrap()).unwrap();
    let strings = open_small(&strings).unwrap();
    assert_eq!(strings.identity().unwrap(), pairs.identity().unwrap());
    let encode = |encoder: &Encoder| encoder.encode(&talk(), &[], 2).unwrap();
    assert_eq!(encode(&strings), encode(&pairs));
    let other = open_small(&small(|file| file["model"]["merges"] = json!([]))).unwrap();
    assert_ne!(other.identity().unwrap(), pairs.identity().unwrap());
}

#[test]
fn merges_of_both_spellings_in_one_file_are_read_as_the_library_reads_them() {
    let both = open_small(&small(|file| file["model"]["merges"] = json!([["i", "n"], "i n"])));
    let (both, pairs) = (both.unwrap(), open_small(&small(|_| ())).unwrap());
    both.built().unwrap();
    let encode = |encoder: &Encoder| encoder.encode(&talk(), &[], 2).unwrap();
    assert_eq!(encode(&both), encode(&pairs));
}
