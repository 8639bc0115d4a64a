//! Bad recipes and their exact answers: a table that grows with the keys, in one file to be read through.

use std::fs;

use serde_json::json;
use stoker_engine::error::Error;
use stoker_engine::recipe::{BatchLayout, Document, Recipe};

const GOOD: &str = "[dataset]\nsource = 's3://bucket/train.jsonl'\n";

/// The problems of a recipe, each as it is shown.
pub(crate) fn problems(result: Result<Recipe, Error>) -> Vec<String> {
    match result {
        Err(Error::Recipe(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("expected problems, got {other:?}"),
    }
}

#[track_caller]
fn expect(cases: &[(&str, &str)]) {
    for (text, answer) in cases {
        assert_eq!(problems(Recipe::from_toml(&format!("{GOOD}{text}"))), [*answer], "{text}");
    }
}

#[test]
fn a_wrong_type_is_shown_with_what_was_expected() {
    expect(&[
        (
            "[pack]\nbatch-size = 'eight'",
            r#"pack.batch-size: expected a whole number, found "eight""#,
        ),
        (
            "[pack]\nbatch-size = 8.0",
            "pack.batch-size: expected a whole number, found 8.0; write 8",
        ),
        ("[pack]\nbatch-size = 8.5", "pack.batch-size: expected a whole number, found 8.5"),
        ("[pack]\nbatch-size = [8]", "pack.batch-size: expected a whole number, found a list"),
        ("[pack]\nbatch-size = nan", r#"pack.batch-size: expected a whole number, found "NaN""#),
        ("[fetch]\nanonymous = 'yes'", r#"fetch.anonymous: expected true or false, found "yes""#),
        (
            "[fetch]\naddressing = 'host'",
            "fetch.addressing: unknown value \"host\"; allowed: path, virtual-host",
        ),
        ("[fetch]\nregion = 7", r#"fetch.region: expected text, found 7; write "7""#),
        ("[text]\ntemplate-options = 1", "text.template-options: expected a table, found 1"),
        (
            "[fetch]\nread-timeout = 'soon'",
            "fetch.read-timeout: expected a duration such as \"5s\", found \"soon\"; durations are \
             seconds, or text with ms, s, min or h",
        ),
        (
            "[engine]\nmemory = '256M'",
            "engine.memory: expected a size such as \"256MiB\", found \"256M\"; sizes are bytes, or \
             text with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB",
        ),
    ]);
}

#[test]
fn a_value_out_of_range_is_shown_with_the_range() {
    expect(&[
        ("[pack]\nbatch-size = 0", "pack.batch-size: 0 is out of range; allowed: 1 to 65536"),
        ("[pack]\nbatch-size = -1", "pack.batch-size: -1 is out of range; allowed: 1 to 65536"),
        ("[plan]\nlanes = 65537", "plan.lanes: 65537 is out of range; allowed: 1 to 65536"),
        (
            "[plan]\nlanes = 8589934592",
            "plan.lanes: 8589934592 is out of range; allowed: 1 to 65536",
        ),
        (
            "[fetch]\nconcurrency = 4097",
            "fetch.concurrency: 4097 is out of range; allowed: 1 to 4096",
        ),
        ("[fetch]\nattempts = 0", "fetch.attempts: 0 is out of range; allowed: 1 to 100"),
        (
            "[fetch]\nconnect-timeout = 0",
            "fetch.connect-timeout: 0 is out of range; allowed: 1ms to 3600s",
        ),
        (
            "[fetch]\nconnect-timeout = -3.5",
            "fetch.connect-timeout: -3.5 is out of range; allowed: 1ms to 3600s",
        ),
        (
            "[engine]\nmemory = '1MiB'",
            "engine.memory: \"1MiB\" is out of range; allowed: 16MiB to 1024TiB",
        ),
        ("[engine]\nmemory = -1", "engine.memory: -1 is out of range; allowed: 16MiB to 1024TiB"),
        ("[engine]\nprefetch = 1025", "engine.prefetch: 1025 is out of range; allowed: 0 to 1024"),
        ("[engine]\nworkers = 0", "engine.workers: 0 is out of range; allowed: 1 to 1024"),
        (
            "[engine]\nbad-sample-limit = 1.5",
            "engine.bad-sample-limit: 1.5 is out of range; allowed: 0 to 1",
        ),
        (
            "[vision]\nmin-pixels = 9\nmax-pixels = 4",
            "vision.min-pixels: 9 is more than vision.max-pixels, which is 4; exchange them, or \
             leave one out to get the model's",
        ),
    ]);
}

#[test]
fn an_unknown_choice_is_shown_with_all_there_are() {
    expect(&[
        (
            "[plan]\nshuffle = 'ful'",
            "plan.shuffle: unknown value \"ful\"; did you mean \"full\"? allowed: full, block, none",
        ),
        ("[plan]\nshuffle = true", "plan.shuffle: unknown value true; allowed: full, block, none"),
        (
            "[text]\ntrain-on = 'last_assistant'",
            "text.train-on: unknown value \"last_assistant\"; did you mean \"last-assistant\"? \
             allowed: assistant, last-assistant, all",
        ),
        (
            "[vision]\npixels = 'float64'",
            "vision.pixels: unknown value \"float64\"; allowed: f32, bf16, u8",
        ),
    ]);
}

#[test]
fn an_unknown_name_is_shown_with_what_was_probably_meant() {
    expect(&[
        ("[pack]\nbatch-sise = 8", "pack.batch-sise: unknown key; did you mean `batch-size`?"),
        (
            "[engine]\nbatch_size = 8",
            "engine.batch-size: unknown key; `batch-size` belongs in [pack]",
        ),
        (
            "[fetch]\nmax-pixels = 8",
            "fetch.max-pixels: unknown key; `max-pixels` belongs in [image] or in [vision]",
        ),
        (
            "[text]\nmodel = 'm'",
            "text.model: unknown key; `model` belongs at the top, before the first section",
        ),
        (
            "[engine]\nbatchsize = 8",
            "engine.batchsize: unknown key; did you mean `batch-size` in [pack]?",
        ),
        (
            "[pack]\nfrobnicate = 8",
            "pack.frobnicate: unknown key; [pack] has: batch-size, max-tokens, max-images, \
             max-patches, min-images-per-batch, layout, pad-to-multiple",
        ),
        ("[visoin]\n", "visoin: unknown section or key; did you mean the section [vision]?"),
        (
            "[frobnicate]\n",
            "frobnicate: unknown section or key; there are: model, compat, [dataset], [plan], \
             [fetch], [image], [vision], [text], [pack], [engine], [[datasets]]",
        ),
    ]);
}

#[test]
fn what_does_not_go_together_in_a_batch_is_refused() {
    expect(&[
        (
            "[pack]\nmax-tokens = 4096\nbatch-size = 8",
            "pack.max-tokens: a batch holds so many tokens or pack.batch-size samples, not both; \
             leave one of them out; in an override, null takes it out",
        ),
        (
            "[pack]\nmax-tokens = 4096\nlayout = 'padded'",
            "pack.layout: a batch of pack.max-tokens is one row; write \"packed\", or leave it out",
        ),
        (
            "[pack]\nmax-images = 4",
            "pack.max-images: goes with pack.max-tokens; a batch of pack.batch-size holds what its \
             samples have",
        ),
        (
            "[pack]\nbatch-size = 4\nmax-patches = 4",
            "pack.max-patches: goes with pack.max-tokens; a batch of pack.batch-size holds what its \
             samples have",
        ),
        (
            "[pack]\nmax-tokens = 100\npad-to-multiple = 128",
            "pack.pad-to-multiple: no multiple of it fits into pack.max-tokens, which is 100; lower \
             it, or raise pack.max-tokens",
        ),
        (
            "[pack]\nmax-tokens = 100\nmax-images = 2\nmin-images-per-batch = 3",
            "pack.min-images-per-batch: is more than pack.max-images, which is 2; lower it; 1 is \
             what is mostly needed",
        ),
    ]);
}

#[test]
fn a_budget_of_tokens_takes_the_place_of_the_batch_size() {
    let pack = |text: &str| Recipe::from_toml(&format!("{GOOD}[pack]\n{text}")).unwrap().pack;
    let by_tokens = pack("max-tokens = 4096");
    assert_eq!((by_tokens.batch_size, by_tokens.max_tokens), (None, Some(4096)));
    assert_eq!(by_tokens.layout, BatchLayout::Packed);
    let by_samples = pack("layout = 'packed'");
    assert_eq!((by_samples.batch_size, by_samples.max_tokens), (Some(8), None));
}

#[test]
fn text_that_cant_be_meant_is_refused() {
    expect(&[
        ("[fetch]\nregion = ' '", "fetch.region: is empty; leave it out to get the default"),
        (
            "[fetch]\nendpoint = 'localhost:9000'",
            "fetch.endpoint: \"localhost:9000\" is not an http(s) address; write one such as \
             http://localhost:9000",
        ),
        (
            "[fetch]\nendpoint = 'http://me:secret@host'",
            "fetch.endpoint: holds a user name or password; credentials come from the environment \
             (AWS_ACCESS_KEY_ID, …) or a profile",
        ),
        (
            "[text]\ntokenizer = 's3://b/tokenizer.json'",
            "text.tokenizer: expected a path on this machine, found s3://; copy it here first, and \
             give its path",
        ),
        (
            "[vision]\nconfig = '~/config.json'",
            "vision.config: \"~/config.json\" begins with ~, which only a shell expands; write the \
             path in full",
        ),
    ]);
}

#[test]
fn mistakes_about_the_source_and_the_whole_get_their_answer() {
    let missing = "dataset.source: is missing; give the URI or path of the samples, such as \
                   s3://bucket/train.jsonl or s3://bucket/train-{000..127}.tar";
    let cases = [
        (Recipe::from_toml(""), missing),
        (Recipe::from_json(r#"{"dataset": {"source": null}}"#), missing),
        (
            Recipe::from_toml("dataset = 'train.jsonl'"),
            "dataset: expected a section, found \"train.jsonl\"; write [dataset] and its keys below",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = 's4://bucket/train.jsonl'"),
            "dataset.source: unknown kind of store s4://; did you mean s3://? allowed: s3, gs, az, \
             http, https, file, or a path",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = ['a', 'b3://c/d']"),
            "dataset.source: unknown kind of store b3://; did you mean s3://? allowed: s3, gs, az, \
             http, https, file, or a path",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = []"),
            "dataset.source: is an empty list; name at least one",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = ['a', 7]"),
            "dataset.source: expected a list of text, found 7",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = 's3://b/{0..9999999}.tar'"),
            "dataset.source: \"s3://b/{0..9999999}.tar\" names more than 1000000 shards; give a list \
             of patterns, each for a part of them",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = 'a'\nformat = 'tar'"),
            "dataset.format: unknown value \"tar\"; allowed: jsonl, webdataset, parquet, mds",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = 'a'\nfields = { message = 'chat' }"),
            "dataset.fields.message: unknown key; did you mean `messages`?",
        ),
        (
            Recipe::from_toml("[fetch]\ncache = { path = '/c' }\n[dataset]\nsource = 'a'"),
            "fetch.cache.size: is missing; say how much of the disk it may take, such as \"500GiB\"",
        ),
        (
            Recipe::from_toml("[fetch.cache]\nsize = '1GiB'\n[dataset]\nsource = 'a'"),
            "fetch.cache.path: is missing; name a folder on a local disk, or leave fetch.cache out",
        ),
        (
            Recipe::from_toml(
                "[fetch.cache]\npath = '/c'\nsize = '1GiB'\nlimit = 3\n[dataset]\nsource = 'a'",
            ),
            "fetch.cache.limit: unknown key; [fetch.cache] has: path, size",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = 'a'\n[dataset.fields]\nimages = ''"),
            "dataset.fields.images: is empty; leave it out to get the default",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = 'a'\nfields = { messages = 'a', answer = 'b' }"),
            "dataset.fields.messages: messages hold questions and answers already; name either \
             messages, or question and answer",
        ),
        (
            Recipe::from_toml("[dataset]\nsource = 'a'\nfields = { question = 'q' }"),
            "dataset.fields.question: a question without an answer has nothing to learn; name the \
             answer too",
        ),
        (
            Recipe::from_toml(&format!("batch-size = 8\n{GOOD}")),
            "batch-size: unknown section or key; `batch-size` belongs in [pack]",
        ),
        (
            Recipe::from_value(json!([1])),
            "document: expected a table of sections; write {\"dataset\": {\"source\": …}, …}",
        ),
        (
            Recipe::from_value(json!({
                "dataset": {"source": "a"}, "text": {"template_options": {"x": [null]}}
            })),
            "text.template-options: holds a null; leave the variable out, or give it as text",
        ),
    ];
    for (result, answer) in cases {
        assert_eq!(problems(result), [answer]);
    }
}

#[test]
fn syntax_errors_come_with_line_and_column() {
    let toml = problems(Recipe::from_toml("[dataset]\nsource = 'a'\n[pack]\nbatch-size 8\n"));
    assert_eq!(toml.len(), 1);
    assert!(toml[0].starts_with("line 4, column 12: not TOML: "), "{toml:?}");
    let json = problems(Recipe::from_json("{\n  \"dataset\": {\"source\": }\n}"));
    assert_eq!(json, ["line 2, column 25: not JSON: expected value"]);
    // Columns are characters, not bytes.
    let wide = problems(Recipe::from_toml("model = 'éé' x"));
    assert!(wide[0].starts_with("line 1, column 14: not TOML: "), "{wide:?}");
}

#[test]
fn a_name_that_is_given_twice_is_refused_in_every_notation() {
    let toml = problems(Recipe::from_toml("[pack]\nbatch-size = 1\nbatch-size = 2"));
    assert!(toml[0].contains("not TOML: duplicate key"), "{toml:?}");
    let json = r#"{"dataset": {"source": "a"}, "pack": {"batch-size": 1, "batch-size": 2}}"#;
    let json = problems(Recipe::from_json(json));
    assert!(json[0].starts_with("line 1, column "), "{json:?}");
    assert!(json[0].ends_with(": not JSON: `batch-size` is given twice"), "{json:?}");
    let value = json!({"dataset": {"source": "a"}, "pack": {"batch-size": 1, "batch_size": 2}});
    assert_eq!(
        problems(Recipe::from_value(value)),
        ["pack.batch-size: is given twice, with _ and with -; keep one"]
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let mut document = Document::from_toml(
        "compat = 'pil'\n[plan]\nlanes = 0\nepoch = 3\n[pack]\nbatch-size = 'x'\n[engin]\nworkers = 4",
    )
    .unwrap();
    for wrong in ["fetch.attempts=0", "nonsense", "pack..x=1", "compat.x=1"] {
        document.set(wrong);
    }
    let Err(Error::Recipe(problems)) = document.recipe() else { panic!("it is wrong") };
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    let overrides = ["nonsense", "pack..x", "compat.x"];
    let keys = ["compat", "dataset.source", "plan.lanes", "plan.epoch", "fetch.attempts"];
    assert_eq!(paths, [&overrides[..], &keys[..], &["pack.batch-size", "engin"]].concat());
}

#[test]
fn files_that_are_no_recipe_are_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let answer = |name: &str, content: Option<&[u8]>| {
        let file = folder.path().join(name);
        if let Some(content) = content {
            fs::write(&file, content).unwrap();
        }
        let shown = problems(Recipe::from_file(&file));
        assert_eq!(shown.len(), 1, "{shown:?}");
        shown[0].replace(&format!("{}/", folder.path().display()), "")
    };
    assert!(answer("none.toml", None).starts_with("none.toml: can't be read: No such file"));
    assert!(
        answer("latin.toml", Some(b"model = '\xe9'")).starts_with("latin.toml: can't be read: ")
    );
    assert_eq!(
        answer("recipe.yaml", None),
        "recipe.yaml: is neither TOML nor JSON by its name; name it *.toml or *.json, after what is \
         in it"
    );
    assert_eq!(
        answer("cut.json", Some(b"{\"dataset\":")),
        "cut.json, line 1, column 11: not JSON: EOF while parsing a value"
    );
    let marked = folder.path().join("marked.TOML");
    fs::write(&marked, format!("\u{feff}{GOOD}")).unwrap();
    Recipe::from_file(&marked).unwrap();
}

#[test]
fn deep_nesting_is_an_error_and_no_stack_overflow() {
    for depth in [1_000, 200_000] {
        let json = format!("{{\"text\": {}", "[".repeat(depth));
        assert!(problems(Recipe::from_json(&json))[0].contains("not JSON"));
        let toml = format!("model = {}", "[".repeat(depth));
        assert!(problems(Recipe::from_toml(&toml))[0].contains("not TOML"));
        let dotted = format!("x{} = 1", ".x".repeat(depth));
        assert!(Recipe::from_toml(&dotted).is_err());
    }
}
