//! Each key: it is read, it is refused elsewhere, and its default is what its documentation says.

use serde_json::{Value, json};
use stoker_engine::recipe::Recipe;

use crate::mistakes::problems;

/// All keys that a written recipe has, as `(section, key, value)`.
fn keys_of(recipe: &Recipe) -> Vec<(String, String, Value)> {
    let mut keys = Vec::new();
    for (name, value) in recipe.to_value().as_object().expect("a recipe is a table") {
        match value {
            Value::Object(section) => keys.extend(
                section.iter().map(|(key, value)| (name.clone(), key.clone(), value.clone())),
            ),
            _ => keys.push((String::new(), name.clone(), value.clone())),
        }
    }
    keys
}

/// The keys that a dataset has in a list, besides those of `[dataset]`.
const LISTED: [&str; 3] = ["name", "weight", "epochs"];

/// A good document with one more key.
fn with_key(section: &str, key: &str, value: Value) -> Value {
    let mut root = json!({"dataset": {"source": "a"}});
    if section.is_empty() {
        root[key] = value;
    } else {
        root[section][key] = value;
    }
    root
}

#[test]
fn every_key_that_is_written_is_read_and_checked() {
    for (section, key, _) in keys_of(&Recipe::default()) {
        // No key takes a list of numbers: so each that is really read complains, at its own path.
        let shown = problems(Recipe::from_value(with_key(&section, &key, json!([1]))));
        let path = if section.is_empty() { key } else { format!("{section}.{key}") };
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0].starts_with(&format!("{path}: ")), "{shown:?}");
        assert!(!shown[0].contains("unknown key"), "{shown:?}");
    }
}

#[test]
fn every_section_and_the_top_refuse_what_they_do_not_know() {
    let mut sections: Vec<_> = keys_of(&Recipe::default()).into_iter().map(|key| key.0).collect();
    sections.dedup();
    assert_eq!(sections.len(), 9);
    for section in sections {
        let shown = problems(Recipe::from_value(with_key(&section, "frobnicate", json!(1))));
        assert_eq!(shown.len(), 1);
        assert!(shown[0].contains("frobnicate: unknown"), "{shown:?}");
    }
}

/// The doc comment of a field, in `sections.rs`, `fetch.rs` or `dataset.rs`.
fn documentation(section: &str, key: &str) -> String {
    let source = concat!(
        include_str!("../../src/recipe/sections.rs"),
        include_str!("../../src/recipe/fetch.rs"),
        include_str!("../../src/recipe/dataset.rs")
    );
    let name = if section.is_empty() { "recipe" } else { section };
    let start = format!("pub struct {}{} {{", name[..1].to_uppercase(), &name[1..]);
    let body = source.split_once(&start).expect("the section is a struct").1;
    let body = body.split_once("\n}").expect("the struct ends").0;
    let field = format!("pub {}:", key.replace('-', "_"));
    let lines = body.split_once(&field).expect("the key is a field").0.lines().map(str::trim);
    let docs = lines.rev().skip(1).take_while(|line| line.starts_with("///"));
    let docs: Vec<_> = docs.map(|line| line.trim_start_matches('/').trim()).collect();
    docs.into_iter().rev().collect::<Vec<_>>().join(" ")
}

#[test]
fn defaults_are_what_the_documentation_says() {
    // Section, key, what is written out, and the words of the documentation that say so.
    let cases = [
        ("", "compat", json!("as-displayed"), ""),
        ("dataset", "fields", json!({}), "not the usual ones"),
        ("dataset", "allow-http", json!(false), "Off,"),
        ("dataset", "max-line", json!("16MiB"), "16 MiB:"),
        ("dataset", "max-copied", json!("64GiB"), "64 GiB:"),
        ("plan", "seed", json!(0), "0."),
        ("plan", "shuffle", json!("full"), "`full`"),
        ("plan", "window", json!(null), "16 by default"),
        ("plan", "epochs", json!(null), "endless by default"),
        ("plan", "remainder", json!("fill"), "`fill`"),
        ("plan", "temperature", json!(null), "as at 1"),
        ("plan", "stages", json!([]), "none by default"),
        ("plan", "lanes", json!(64), "64,"),
        ("fetch", "concurrency", json!(64), "64:"),
        ("fetch", "attempts", json!(8), "8."),
        ("fetch", "connect-timeout", json!("5s"), "5 s."),
        ("fetch", "read-timeout", json!("10s"), "10 s;"),
        ("fetch", "deadline", json!("300s"), "5 min;"),
        ("fetch", "anonymous", json!(false), ""),
        ("fetch", "requester-pays", json!(false), "No."),
        ("fetch", "checksum", json!(false), "No:"),
        ("image", "max-pixels", json!(100_000_000), "100 million"),
        ("image", "max-side", json!(65_500), "65,500"),
        ("image", "max-bytes", json!("64MiB"), "64 MiB"),
        ("image", "max-scans", json!(100), "100;"),
        ("image", "approximate", json!(false), "No."),
        ("vision", "pixels", json!("f32"), ""),
        ("text", "template-options", json!({}), ""),
        ("text", "train-on", json!("assistant"), "`assistant`"),
        ("text", "train-newline", json!(true), "Yes,"),
        ("text", "max-tokens", json!(null), "no limit by default"),
        ("text", "on-too-long", json!("refuse"), "`refuse`"),
        ("pack", "batch-size", json!(8), "8."),
        ("pack", "min-images-per-batch", json!(0), "0;"),
        ("pack", "layout", json!("padded"), "`padded`"),
        ("pack", "pad-to-multiple", json!(1), "1."),
        ("engine", "local-world-size", json!(null), "else 1"),
        ("engine", "prefetch", json!(null), "half a second"),
        ("engine", "on-bad-sample", json!("replace"), "`replace`"),
        ("engine", "bad-sample-limit", json!(0.01), "0.01."),
    ];
    let recipe = Recipe::from_toml("[dataset]\nsource = 'a'").unwrap();
    for (section, key, value) in keys_of(&recipe) {
        let docs = documentation(&section, &key);
        assert!(!docs.is_empty(), "{section}.{key} is not documented");
        match cases.iter().find(|case| (case.0, case.1) == (section.as_str(), key.as_str())) {
            Some((_, _, default, words)) => {
                assert_eq!(&value, default, "{section}.{key}");
                assert!(docs.contains(words), "{section}.{key}: {words:?} is not in {docs:?}");
            }
            None if key == "source" => assert_eq!(value, json!("a")),
            None => assert_eq!(value, Value::Null, "{section}.{key} has a default; add it here"),
        }
    }
}

/// The rows of the tables in the reference, as `(section, key, default, allowed)`.
fn reference() -> Vec<[String; 4]> {
    let (mut section, mut rows) = (String::new(), Vec::new());
    for line in include_str!("../../../../docs/reference/recipe.md").lines() {
        if let Some(title) = line.strip_prefix("## [") {
            title.trim_end_matches(']').clone_into(&mut section);
        }
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        if line.starts_with("| `") {
            rows.push([section.clone(), cells[1].clone(), cells[2].clone(), cells[3].clone()]);
        }
    }
    rows
}

#[test]
fn the_reference_lists_every_key_in_order_with_its_default_and_what_is_allowed() {
    let (list, rows): (Vec<_>, Vec<_>) =
        reference().into_iter().partition(|row| row[0].starts_with('['));
    let keys = keys_of(&Recipe::default());
    let places = |section: &str, key: &str| format!("{section}.{key}");
    assert_eq!(list.len(), LISTED.len());
    assert_eq!(
        rows.iter().map(|row| places(&row[0], &row[1])).collect::<Vec<_>>(),
        keys.iter().map(|(section, key, _)| places(section, key)).collect::<Vec<_>>()
    );
    for ([section, key, default, allowed], (_, _, value)) in rows.iter().zip(&keys) {
        let value = match value {
            Value::Null => "not set".to_owned(),
            Value::String(text) if text.is_empty() => "required".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        assert_eq!(default, &value, "{section}.{key}");
        let wrong = [json!(-1), json!("?")].map(|wrong| with_key(section, key, wrong));
        let answers = wrong.map(|wrong| Recipe::from_value(wrong).map_err(|e| e.to_string()));
        let ranges = answers.iter().filter_map(|answer| answer.as_ref().err());
        for range in ranges.filter_map(|answer| answer.split_once("allowed: ")) {
            assert_eq!(allowed, range.1, "{section}.{key}");
        }
    }
}

#[test]
fn the_reference_lists_the_keys_of_a_dataset_in_a_list_with_what_is_allowed() {
    let rows = reference().into_iter().filter(|row| row[0].starts_with('['));
    let rows: Vec<_> = rows.map(|[_, key, _, allowed]| (key, allowed)).collect();
    assert_eq!(rows.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), LISTED);
    for (key, allowed) in &rows[1..] {
        let entry = json!({"name": "a", "source": "a", key: -1});
        let shown = problems(Recipe::from_value(json!({"datasets": [entry]})));
        assert_eq!(shown, [format!("datasets.a.{key}: -1 is out of range; allowed: {allowed}")]);
    }
}

#[test]
fn toml_shows_every_key_and_reads_back_to_the_same_recipe() {
    let recipe = Recipe::from_toml(
        "model = \"it's \\\"m\\\" \\n\"\n[dataset]\nsource = 'a'\n[text]\n\
         template-options = { a = [1, 'x'], b = { c = true } }",
    )
    .unwrap();
    let text = recipe.to_toml();
    for (section, key, _) in keys_of(&recipe) {
        assert!(text.contains(&format!("{key} ")), "{section}.{key} is missing in\n{text}");
    }
    let plan = "\n[plan]\nseed = 0\nshuffle = \"full\"\n# window is not set\n# epochs is not set\n\
                remainder = \"fill\"\n# temperature is not set\nstages = []\nlanes = 64\n";
    assert!(text.contains(plan), "{text}");
    assert_eq!(Recipe::from_toml(&text).unwrap(), recipe, "{text}");
}
