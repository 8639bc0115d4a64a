//! Several datasets in one recipe: what is read, what is written, and the answers to mistakes.

use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};
use stoker_engine::recipe::{Decimal, Document, Recipe, Share};

use crate::mistakes::problems;

const TWO: &str = "[[datasets]]\nname = 'captions'\nsource = 'a'\nweight = 3\n\
                   [[datasets]]\nname = 'documents'\nsource = 'b'\nweight = 0.5\n";

fn decimal(number: f64) -> Decimal {
    Decimal::new(number).expect("a test takes numbers in range")
}

#[track_caller]
fn expect(cases: &[(&str, &str)]) {
    for (text, answer) in cases {
        assert_eq!(problems(Recipe::from_toml(text)), [*answer], "{text}");
    }
}

#[test]
fn each_dataset_has_a_name_its_share_and_the_keys_of_a_dataset() {
    let recipe = Recipe::from_toml(&format!("{TWO}media_root = 's3://b/images'\n")).unwrap();
    let names: Vec<_> = recipe.datasets.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["captions", "documents"]);
    let shares: Vec<_> = recipe.datasets.iter().map(|one| one.share).collect();
    assert_eq!(shares, [Share::Weight(decimal(3.0)), Share::Weight(decimal(0.5))]);
    assert_eq!(recipe.datasets[1].dataset.media_root.as_deref(), Some("s3://b/images"));
    let json = json!({"datasets": [
        {"name": "captions", "source": "a", "epochs": 2},
        {"name": "documents", "source": "b", "epochs": 0.5, "media_root": null},
    ]});
    let recipe = Recipe::from_value(json).unwrap();
    assert_eq!(recipe.datasets[1].share, Share::Epochs(decimal(0.5)));
}

#[test]
fn one_dataset_alone_is_the_shorthand_of_a_list_of_one() {
    let short = Recipe::from_toml("[dataset]\nsource = 'a'").unwrap();
    let long = Recipe::from_toml("[[datasets]]\nname = 'dataset'\nsource = 'a'").unwrap();
    assert_eq!(short, long);
    let named = Recipe::from_toml("[[datasets]]\nname = 'x'\nsource = 'a'").unwrap();
    assert_eq!(Recipe::from_toml(&named.to_toml()).unwrap(), named);
}

#[test]
fn nothing_is_as_if_it_were_not_there() {
    let one = Recipe::from_toml("[dataset]\nsource = 'a'").unwrap();
    let nulls = json!({"dataset": {"source": "a"}, "datasets": null, "plan": {"stages": null}});
    assert_eq!(Recipe::from_value(nulls).unwrap(), one);
    let two = json!({"dataset": null, "datasets": [
        {"name": "captions", "source": "a", "weight": 3, "epochs": null},
        {"name": "documents", "source": "b", "weight": 0.5},
    ]});
    assert_eq!(Recipe::from_value(two).unwrap(), Recipe::from_toml(TWO).unwrap());
}

#[test]
fn a_stage_changes_the_weights_that_it_names() {
    let text = format!(
        "{TWO}[[plan.stages]]\nfrom = 1000\nweights = {{ captions = 0 }}\n\
         [[plan.stages]]\nfrom = 2000\nweights = {{ captions = 1, documents = 4 }}\n"
    );
    let recipe = Recipe::from_toml(&text).unwrap();
    let stages: Vec<_> =
        recipe.plan.stages.iter().map(|stage| (stage.from, stage.weights.clone())).collect();
    let first = vec![decimal(0.0), decimal(0.5)];
    assert_eq!(stages, [(1000, first), (2000, vec![decimal(1.0), decimal(4.0)])]);
    assert_eq!(Recipe::from_toml(&recipe.to_toml()).unwrap(), recipe, "{}", recipe.to_toml());
}

#[test]
fn an_override_speaks_of_a_dataset_by_its_name_or_number() {
    let mut document = Document::from_toml(TWO).unwrap();
    for assignment in ["datasets.captions.weight=7", "datasets.1.max_line=2MiB"] {
        document.set(assignment);
    }
    let recipe = document.recipe().unwrap();
    assert_eq!(recipe.datasets[0].share, Share::Weight(decimal(7.0)));
    assert_eq!(recipe.datasets[1].dataset.max_line, 2 << 20);
    let mut document = Document::from_toml(TWO).unwrap();
    for wrong in ["datasets.pictures.weight=7", "datasets.weight.x.y=1"] {
        document.set(wrong);
    }
    let answer = "is no item of the list; write the name of one, such as datasets.NAME.weight";
    assert_eq!(
        problems(document.recipe()),
        [format!("datasets.pictures.weight: {answer}"), format!("datasets.weight.x.y: {answer}")]
    );
}

#[test]
fn relative_paths_of_all_datasets_start_from_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recipe.toml");
    fs::write(&file, TWO.replace("'b'", "['s3://b/c.jsonl', 'd-{0..3}.jsonl']")).unwrap();
    let recipe = Recipe::from_file(&file).unwrap();
    let written = recipe.to_value()["datasets"].clone();
    let place = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(written[0]["source"], json!(place("a")));
    assert_eq!(written[1]["source"], json!(["s3://b/c.jsonl", place("d-{0..3}.jsonl")]));
}

#[test]
fn mistakes_in_a_list_are_told_with_the_name_of_the_dataset() {
    let one = |keys: &str| format!("[[datasets]]\nname = 'a'\nsource = 'a'\n{keys}");
    expect(&[
        (&one("weigth = 1"), "datasets.a.weigth: unknown key; did you mean `weight`?"),
        (
            &one("batch-size = 1"),
            "datasets.a.batch-size: unknown key; `batch-size` belongs in [pack]",
        ),
        (
            &one("frobnicate = 1"),
            "datasets.a.frobnicate: unknown key; [[datasets]] has: name, weight, epochs, source, \
             format, fields, media-root, allow-http, max-line, max-copied, index-dir",
        ),
        (&one("formt = 'mds'"), "datasets.a.formt: unknown key; did you mean `format`?"),
        (
            &one("format = 'tar'"),
            "datasets.a.format: unknown value \"tar\"; allowed: jsonl, webdataset, parquet, mds",
        ),
        (
            &one("fields = { qestion = 'q' }"),
            "datasets.a.fields.qestion: unknown key; did you mean `question`?",
        ),
        (
            &one("[datasets.fields]\nquestion = 'q'"),
            "datasets.a.fields.question: a question without an answer has nothing to learn; name \
             the answer too",
        ),
        (&one("weight = -1"), "datasets.a.weight: -1 is out of range; allowed: 0 to 1000000"),
        (&one("weight = '3'"), "datasets.a.weight: expected a number, found \"3\""),
        (&one("epochs = 0"), "datasets.a.epochs: 0 is out of range; allowed: 0.000001 to 1000000"),
        (
            &one("weight = 1\nepochs = 2"),
            "datasets.a.weight: is given beside epochs; keep one of them",
        ),
        (&one("weight = 0"), "datasets: all weights are 0; give one a weight above 0"),
        (
            "[[datasets]]\nname = 'a'",
            "datasets.a.source: is missing; give the URI or path of the samples, such as \
             s3://bucket/train.jsonl or s3://bucket/train-{000..127}.tar",
        ),
        (
            "[[datasets]]\nsource = 'a'",
            "datasets.0.name: is missing; give each dataset a name of its own",
        ),
        (
            "[[datasets]]\nname = 'a.b'\nsource = 'a'",
            "datasets.a.b.name: is no name for a dataset; names are up to 64 letters, digits, - \
             and _",
        ),
        (
            &[one(""), one("")].concat(),
            "datasets.a: is the name of two datasets; rename one of them",
        ),
        ("datasets = []", "datasets: is empty; write [[datasets]] once for each dataset"),
        (
            "[datasets]\nsource = 'a'",
            "datasets: expected a list, found a table; write [[datasets]] once for each dataset",
        ),
        (
            "[[dataset]]\nsource = 'a'",
            "dataset: expected a section, found a list; write [[datasets]] for a list",
        ),
        (
            &format!("{}[dataset]\nsource = 'b'", one("")),
            "dataset: is given beside [[datasets]]; make it one of [[datasets]]",
        ),
        (
            "[dataset]\nsource = 'a'\nweight = 1",
            "dataset.weight: unknown key; `weight` belongs in [[datasets]]",
        ),
    ]);
}

#[test]
fn shares_that_do_not_go_together_are_refused() {
    let two = |first: &str, second: &str| {
        format!(
            "[[datasets]]\nname = 'a'\nsource = 'a'\n{first}\n[[datasets]]\nname = 'b'\nsource = \
             'b'\n{second}\n"
        )
    };
    expect(&[
        (
            &two("weight = 1", ""),
            "datasets.b: has no weight, and other datasets have; give all datasets weight, or none",
        ),
        (
            &two("", "epochs = 1"),
            "datasets.a: has no epochs, and other datasets have; give all datasets epochs, or none",
        ),
        (
            &two("weight = 1", "epochs = 1"),
            "datasets: some have weight and some have epochs; give all datasets weight, or all of \
             them epochs",
        ),
        (
            &format!("{TWO}[plan]\ntemperature = 2"),
            "plan.temperature: is for datasets without weight and epochs; leave it out, or take \
             weight and epochs from all datasets",
        ),
        (
            "[dataset]\nsource = 'a'\n[plan]\ntemperature = 0.5",
            "plan.temperature: 0.5 is out of range; allowed: 1 to 1000",
        ),
        (
            "[dataset]\nsource = 'a'\n[plan]\nwindow = 4",
            "plan.window: is for blocks, and rows are not shuffled in blocks; set plan.shuffle = \
             \"block\", or leave the window out",
        ),
        (
            "[dataset]\nsource = 'a'\n[plan]\nremainder = 'pad'",
            "plan.remainder: is for runs that end, and this one is endless; set plan.epochs, to 1 for \
             one pass over the data",
        ),
        (
            &format!("{}[plan]\nepochs = 1\nremainder = 'pad'", two("weight = 1", "weight = 2")),
            NOT_EVERY_ROW,
        ),
        (
            &format!("{}[plan]\nepochs = 1\nremainder = 'pad'\ntemperature = 2", two("", "")),
            NOT_EVERY_ROW,
        ),
    ]);
}

const NOT_EVERY_ROW: &str = "plan.remainder: \"pad\" is for a pass over every row, and weights leave out \
    some and repeat others; take weight from the datasets, and plan.temperature away; epochs may stay";

#[test]
fn mistakes_in_a_stage_are_told_with_its_number() {
    let staged = |stages: &str| format!("{TWO}[plan]\nstages = [{stages}]");
    let hint = "write { from = POSITION, weights = { NAME = WEIGHT } }";
    expect(&[
        (&staged("{ from = 1 }"), &format!("plan.stages.0.weights: is missing; {hint}")),
        (
            &staged("{ weights = { captions = 1 } }"),
            &format!("plan.stages.0.from: is missing; {hint}"),
        ),
        (
            &staged("{ from = 1, weights = { caption = 1 } }"),
            "plan.stages.0.weights.caption: there is no such dataset; did you mean `captions`?",
        ),
        (
            &staged("{ from = 1, weights = { captions = -1 } }"),
            "plan.stages.0.weights.captions: -1 is out of range; allowed: 0 to 1000000",
        ),
        (
            &staged("{ from = 1, weight = {}, weights = {} }"),
            "plan.stages.0.weight: unknown key; `weight` belongs in [[datasets]]",
        ),
        (
            &staged("{ from = 0, weights = {} }"),
            "plan.stages.0.from: 0 is out of range; allowed: 1 to 9223372036854775807",
        ),
        (
            &staged("{ from = 5, weights = {} }, { from = 5, weights = {} }"),
            "plan.stages.1.from: is not after the stage before, which is from 5; list the stages \
             in their order",
        ),
        (
            &staged("{ from = 5, weights = { captions = 0, documents = 0 } }"),
            "plan.stages.0.weights: all weights are 0; give one a weight above 0",
        ),
        (&staged("7"), "plan.stages: expected a list of tables, found 7"),
        (
            "[dataset]\nsource = 'a'\n[plan]\nstages = [{ from = 1, weights = {} }]",
            "plan.stages: the datasets have no weights; give each of [[datasets]] a weight; a \
             stage changes weights",
        ),
    ]);
}

/// A document with one to five datasets.
fn documents() -> impl Strategy<Value = Value> {
    let share = prop_oneof![Just(None), (1_u64..=1_000_000_000_000).prop_map(Some)];
    let datasets = (prop::collection::btree_set("[a-zA-Z0-9_-]{1,9}", 1..5), share, any::<bool>());
    let stages = prop::collection::vec((1_u64..1000, 0_u32..1000), 0..4);
    (datasets, stages).prop_map(|((names, share, is_weight), stages)| {
        let key = if is_weight { "weight" } else { "epochs" };
        let share = share.map(|share| share as f64 / 1e6);
        let first = names.first().cloned().unwrap_or_default();
        let datasets: Vec<_> = names
            .into_iter()
            .map(|name| json!({"name": name, "source": format!("s3://b/{name}"), key: share}))
            .collect();
        let mut from = 0;
        let mut stage = |(positions, weight): (u64, u32)| {
            from += positions;
            json!({"from": from, "weights": {first.as_str(): f64::from(weight) / 8.0 + 1.0}})
        };
        let stages: Vec<_> = stages.into_iter().map(&mut stage).collect();
        let stages = if is_weight && share.is_some() { stages } else { Vec::new() };
        json!({"datasets": datasets, "plan": {"stages": stages}})
    })
}

proptest! {
    #[test]
    fn a_mixture_that_is_written_is_read_again(document in documents()) {
        let recipe = Recipe::from_value(document).unwrap();
        prop_assert_eq!(&Recipe::from_value(recipe.to_value()).unwrap(), &recipe);
        prop_assert_eq!(&Recipe::from_toml(&recipe.to_toml()).unwrap(), &recipe);
    }
}
