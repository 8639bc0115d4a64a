//! Energon's datasets: the shards of a part, and no sample more or less than its files say.

use serde_json::json;

use super::super::Dataset;
use super::tar::archive;
use super::{Bucket, config, open, rows_of};
use crate::error::Result;
use crate::recipe;

const SPLITS: &str = "\
exclude: []
split_parts:
  train:
  - shards/a-{0..1}.tar
  - shards/c.tar
  val:
  - shards/b.tar
  test: []
";

fn bucket(splits: &str, counts: &str) -> Bucket {
    let shard = |name: &str, samples: usize| {
        let rows = (0..samples).map(|row| (format!("{row}.json"), format!("{name}{row}")));
        let rows: Vec<_> = rows.collect();
        let members: Vec<(&str, &[u8])> =
            rows.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
        (format!("data/shards/{name}.tar"), archive(&members))
    };
    let mut store = Bucket::new([shard("a-0", 2), shard("a-1", 1), shard("b", 3), shard("c", 1)]);
    store.objects.insert("data/.nv-meta/split.yaml".into(), splits.into());
    if !counts.is_empty() {
        store.objects.insert("data/.nv-meta/.info.json".into(), counts.into());
    }
    store
}

fn counts(c: u64) -> String {
    let counts = json!({
        "shards/a-0.tar": 2, "shards/a-1.tar": 1, "shards/b.tar": 3, "shards/c.tar": c,
    });
    json!({"energon_version": "7.1.0", "shard_counts": counts}).to_string()
}

fn dataset(store: &Bucket, part: &str) -> Result<Dataset> {
    let folder = tempfile::tempdir().unwrap();
    let source = vec![format!("s3://bucket/data/.nv-meta/split.yaml{part}")];
    open(&recipe::Dataset { source, ..config(&folder) }, store)
}

/// The texts of all samples, and the notes.
fn found(store: &Bucket, part: &str) -> (Vec<String>, Vec<String>) {
    let data = dataset(store, part).unwrap();
    let texts = rows_of(&data, store).into_iter();
    let texts = texts.map(|row| row.rsplit_once(' ').unwrap().1.to_owned());
    (texts.collect(), data.notes())
}

#[test]
fn a_part_is_its_shards_in_order() {
    let store = bucket(SPLITS, &counts(1));
    let train = ["a-00", "a-01", "a-10", "c0"].map(str::to_owned);
    assert_eq!(found(&store, ""), (train.to_vec(), vec![]));
    assert_eq!(found(&store, "#train").0, train);
    assert_eq!(found(&store, "#val").0, ["b0", "b1", "b2"]);
    assert_eq!(found(&bucket(SPLITS, ""), "").0, train, "without counts");
    let mut json = bucket("", &counts(1));
    let splits = json!({"split_parts": {"train": ["shards/c.tar"]}}).to_string();
    json.objects.insert("data/.nv-meta/split.yaml".into(), splits.into());
    assert_eq!(found(&json, "").0, ["c0"], "JSON is YAML");
    let mut old = bucket(SPLITS, "");
    let text = "shard_counts:\n  shards/c.tar: 9\n";
    old.objects.insert("data/.nv-meta/.info.yaml".into(), text.into());
    assert_eq!(found(&old, "").1.len(), 1, "counts of earlier versions");
}

#[test]
fn a_shard_with_another_number_of_samples_than_was_counted_is_noted() {
    let (_, notes) = found(&bucket(SPLITS, &counts(5)), "");
    let uri = "s3://bucket/data/shards/c.tar";
    assert_eq!(notes, [format!("Energon counted 5 samples, and there are 1: {uri}")]);
}

#[test]
fn shards_may_be_left_out_and_samples_may_not() {
    let without = |names: &str| SPLITS.replace("exclude: []", &format!("exclude: [{names}]"));
    let store = bucket(&without("'shards/a-{0,9}.tar', shards/gone.tar"), &counts(1));
    assert_eq!(found(&store, "").0, ["a-10", "c0"]);
    assert_eq!(found(&store, "#val").0.len(), 3);
    let store = bucket(&without("shards/c.tar/0"), &counts(1));
    assert_eq!(found(&store, "#val").0.len(), 3, "of another part");
    assert_eq!(
        dataset(&store, "").unwrap_err().to_string(),
        "the part leaves out single samples, such as \"shards/c.tar/0\"; only whole shards can be \
         left out: write the shards anew without these samples: \
         s3://bucket/data/.nv-meta/split.yaml"
    );
}

#[test]
fn what_cannot_be_meant_is_refused_in_words() {
    let refusal = |splits: &str, part: &str| {
        let error = dataset(&bucket(splits, ""), part).unwrap_err().to_string();
        let uri = ": s3://bucket/data/.nv-meta/split.yaml";
        error.strip_suffix(uri).unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    assert_eq!(
        refusal(SPLITS, "#dev"),
        "there is no part \"dev\"; the parts are test, train, val; write #part behind the name of \
         the split file"
    );
    assert_eq!(refusal(SPLITS, "#test"), "the part \"test\" has no shards; name another part");
    for text in ["", "- a\n- b", "{", "split_parts: 3", "\u{0}"] {
        let error = refusal(text, "");
        assert!(error.starts_with("the file is none of Energon's: "), "{error}");
        assert!(error.ends_with("such as .nv-meta/split.yaml"), "{error}");
    }
    let out = refusal("split_parts: {train: [../../x.tar]}", "");
    assert!(out.ends_with("; shards lie in the folder that holds .nv-meta"), "{out}");
    let many = refusal("split_parts: {train: ['{0..99999999}']}", "");
    assert!(many.contains("names more than 1000000 shards"), "{many}");
}
