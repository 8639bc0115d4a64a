//! TOML, JSON, dicts, files and overrides mean the same.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use stoker_engine::recipe::{Compat, Document, Pixels, Recipe};

#[test]
fn the_three_notations_and_both_spellings_mean_the_same() {
    let toml = Recipe::from_toml(
        "model = 'm'\ncompat = 'qwen-vl-utils'\n[dataset]\nsource = 'a'\nmax-line = '2MiB'\n\
         [fetch]\nread-timeout = 1.5\n[text]\ntemplate-options = { add_vision_id = true }\n\
         [engine]\nmemory = 268435456\n",
    )
    .unwrap();
    let json = Recipe::from_json(
        r#"{"model": "m", "compat": "qwen-vl-utils", "dataset": {"source": "a", "max-line": 2097152},
            "fetch": {"read-timeout": "1500ms"}, "engine": {"memory": "256 MiB", "workers": null},
            "text": {"template-options": {"add_vision_id": true}}}"#,
    )
    .unwrap();
    let value = Recipe::from_value(json!({
        "model": "m", "compat": "qwen-vl-utils", "dataset": {"source": "a", "max_line": "2mib"},
        "fetch": {"read_timeout": "1.5s"}, "engine": {"memory": "0.25GiB"},
        "text": {"template_options": {"add_vision_id": true}},
    }))
    .unwrap();
    assert_eq!(toml, json);
    assert_eq!(toml, value);
    assert_eq!(toml.compat, Compat::QwenVlUtils);
    assert_eq!(toml.fetch.read_timeout, Duration::from_millis(1500));
    assert_eq!(toml.engine.memory, Some(256 << 20));
    // The user's own names keep their spelling.
    assert_eq!(toml.text.template_options["add_vision_id"], json!(true));
}

#[test]
fn overrides_are_read_as_toml_and_else_as_text() {
    let mut document =
        Document::from_toml("[dataset]\nsource = 'a'\n[pack]\nbatch_size = 2").unwrap();
    for assignment in [
        "pack.batch-size=8",
        "plan.lanes = 4",
        "fetch.anonymous=true",
        "model=models/qwen",
        "dataset.media_root='s3://b/images'",
        "engine.memory=64MiB",
        "fetch.endpoint=http://localhost:9000/?a=b",
        "text.template-options.add_vision_id=true",
        "text.template-options.note=hello there",
    ] {
        document.set(assignment);
    }
    document.set_value("vision.pixels", json!("u8"));
    let recipe = document.recipe().unwrap();
    assert_eq!((recipe.pack.batch_size, recipe.plan.lanes), (Some(8), 4));
    assert!(recipe.fetch.anonymous);
    assert_eq!(recipe.model.as_deref(), Some("models/qwen"));
    assert_eq!(recipe.datasets[0].dataset.media_root.as_deref(), Some("s3://b/images"));
    assert_eq!(recipe.engine.memory, Some(64 << 20));
    assert_eq!(recipe.fetch.endpoint.as_deref(), Some("http://localhost:9000/?a=b"));
    assert_eq!(recipe.vision.pixels, Pixels::U8);
    assert_eq!(
        Value::Object(recipe.text.template_options),
        json!({"add_vision_id": true, "note": "hello there"})
    );
}

#[test]
fn relative_paths_in_a_file_start_from_its_folder_and_those_of_overrides_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let place = |path: &str| folder.path().join(path).display().to_string();
    let file = folder.path().join("recipe.toml");
    let text = "model = 'qwen'\n[dataset]\nsource = 'train.jsonl'\nmedia_root = 's3://b/images'\n\
                index-dir = '../index'\n[vision]\nconfig = '/abs/c.json'\n[text]\n\
                tokenizer = 't.json'\nchat-template = 'a/b.jinja'\n[engine]\nledger = 'bad'\n\
                [fetch.cache]\npath = 'kept'\nsize = '1GiB'\n";
    fs::write(&file, text).unwrap();
    let recipe = Recipe::from_file(&file).unwrap();
    assert_eq!(recipe.fetch.cache.as_ref().map(|cache| cache.path.clone()), Some(place("kept")));
    assert_eq!(recipe.model, Some(place("qwen")));
    assert_eq!(recipe.datasets[0].dataset.source, [place("train.jsonl")]);
    assert_eq!(recipe.datasets[0].dataset.media_root.as_deref(), Some("s3://b/images"));
    assert_eq!(recipe.datasets[0].dataset.index_dir, Some(place("../index")));
    assert_eq!(recipe.vision.config.as_deref(), Some("/abs/c.json"));
    assert_eq!(recipe.text.tokenizer, Some(place("t.json")));
    assert_eq!(recipe.text.chat_template, Some(place("a/b.jinja")));
    assert_eq!(recipe.engine.ledger, Some(place("bad")));

    let many = "[dataset]\nsource = ['a-{0..3}.tar', 's3://b/*.tar', '/abs/x.tar']\n";
    let odd = folder.path().join("odd [1]{a,b}");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("recipe.toml"), many).unwrap();
    let recipe = Recipe::from_file(&odd.join("recipe.toml")).unwrap();
    let first = place("odd [[]1][{]a,b}/a-{0..3}.tar");
    assert_eq!(recipe.datasets[0].dataset.source, [first.as_str(), "s3://b/*.tar", "/abs/x.tar"]);

    let mut document = Document::from_file(&file).unwrap();
    document.set("model=other");
    let portable = document.clone().portable().unwrap();
    let here = std::env::current_dir().unwrap().join("other");
    assert_eq!(portable["model"], here.display().to_string(), "elsewhere there is another folder");
    assert_eq!(portable["dataset"]["source"], place("train.jsonl"));
    assert_eq!(portable["dataset"]["media-root"], "s3://b/images");
    assert_eq!(document.recipe().unwrap().model.as_deref(), Some("other"));
    assert_eq!(Recipe::from_toml(text).unwrap().model.as_deref(), Some("qwen"));
}
