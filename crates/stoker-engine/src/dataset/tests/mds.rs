//! MDS datasets mean what mosaicml-streaming wrote, and pickles are never read.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::Dataset;
use super::forms::short;
use super::{Bucket, config, files, open};
use crate::error::Result;
use crate::recipe::{self, Fields};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/mds")
}

/// The files of a dataset, below `data/`.
fn golden(name: &str) -> Bucket {
    let files = fs::read_dir(corpus().join(name)).unwrap().map(|entry| entry.unwrap().path());
    Bucket::new(files.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (format!("data/{name}"), fs::read(path).unwrap())
    }))
}

fn fields(name: &str) -> Fields {
    match name {
        "vqa" => Fields {
            images: Some(vec!["photo".to_owned(), "a_map".to_owned()]),
            question: Some("query".to_owned()),
            answer: Some("label".to_owned()),
            messages: None,
        },
        _ => Fields::default(),
    }
}

fn settings(folder: &TempDir, fields: Fields) -> recipe::Dataset {
    let source = vec!["s3://bucket/data/index.json".to_owned()];
    recipe::Dataset { source, fields, ..config(folder) }
}

fn dataset(store: &Bucket, fields: Fields) -> Result<(Dataset, TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    Ok((open(&settings(&folder, fields), store)?, folder))
}

fn meanings(data: &Dataset, store: &Bucket) -> Vec<String> {
    let meaning = |row| match store.sample(data, row) {
        Ok(sample) => short(&sample),
        Err(flaw) => flaw.code.to_owned(),
    };
    (0..data.rows()).map(meaning).collect()
}

#[test]
fn every_dataset_means_what_was_written() {
    let rows = fs::read_to_string(corpus().join("rows.json")).unwrap();
    let rows: serde_json::Map<String, Value> = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows.len(), 8);
    for (name, expected) in rows {
        let store = golden(&name);
        let expected: Vec<String> = serde_json::from_value(expected).unwrap();
        let found = dataset(&store, fields(&name));
        if name == "pickled" {
            let error = found.unwrap_err().to_string();
            assert_eq!(
                error,
                "shard 0: the column `messages` is pickled, and reading that can run any code: write \
                 it as str, json, jpeg or png; dataset.fields says which columns are read: \
                 s3://bucket/data/index.json"
            );
            continue;
        }
        let (data, folder) = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(meanings(&data, &store), expected, "{name}");
        let reads = store.asked("read data/shard");
        let again = open(&settings(&folder, fields(&name)), &store).unwrap();
        assert_eq!(again.fingerprint(), data.fingerprint(), "{name}");
        assert_eq!(store.asked("read data/shard"), reads, "{name}: only the index file is read");
        let packed = store.objects.keys().any(|key| key.ends_with("zstd") || key.ends_with("gz"));
        let of_a_shard = if packed { 2 } else { 1 };
        assert_eq!(files(&folder).len(), data.shard_count() * of_a_shard, "{name}");
    }
}

#[test]
fn a_raw_shard_is_taken_where_it_is_there_and_is_the_same_dataset() {
    let packed = golden("zstd");
    let (expected, _folder) = dataset(&packed, Fields::default()).unwrap();
    let mut both = golden("zstd");
    for (key, bytes) in &packed.objects {
        if let Some(raw) = key.strip_suffix(".zstd") {
            let mut unpacked = Vec::new();
            zstd::Decoder::new(bytes.as_slice()).unwrap().read_to_end(&mut unpacked).unwrap();
            both.objects.insert(raw.to_owned(), unpacked);
        }
    }
    let (data, folder) = dataset(&both, Fields::default()).unwrap();
    assert_eq!(data.origin(0), "s3://bucket/data/shard.00000.mds, row 0");
    assert_eq!(files(&folder).len(), data.shard_count(), "nothing is copied");
    assert_eq!(data.fingerprint(), expected.fingerprint());
    assert_eq!(meanings(&data, &both), meanings(&expected, &packed));
}

#[test]
fn an_index_that_cannot_be_used_is_refused_in_words() {
    let refusal = |change: &dyn Fn(&mut Value)| {
        let mut store = golden("plain");
        let mut index: Value = serde_json::from_slice(&store.objects["data/index.json"]).unwrap();
        change(&mut index);
        store.objects.insert("data/index.json".into(), index.to_string().into_bytes());
        dataset(&store, Fields::default()).unwrap_err().to_string()
    };
    for (change, expected) in [
        (
            (&|index: &mut Value| *index = json!({"chunks": []})) as &dyn Fn(&mut Value),
            "the file is no index of an MDS dataset: missing field `version`",
        ),
        (&|index| index["version"] = json!(1), "the index is of version 1, and 2 is read; "),
        (
            &|index| index["shards"][1]["format"] = json!("jsonl"),
            "shard 1: it is jsonl of version 2; write it as MDS, version 2: ",
        ),
        (
            &|index| index["shards"][0]["column_encodings"][2] = json!("ndarray"),
            "shard 0: the column `messages` is encoded as ndarray, which is not read there; ",
        ),
        (
            &|index| index["shards"][0]["column_names"][2] = json!("said"),
            "shard 0: there is no column `messages` or `conversations` or `texts`; the columns are \
             id, image, said, note, score; ",
        ),
        (
            &|index| index["shards"][0]["column_sizes"] = json!([8]),
            "shard 0: it has another number of columns than of encodings or sizes; ",
        ),
        (
            &|index| index["shards"][0]["raw_data"]["basename"] = json!("../../etc/passwd"),
            "shard 0: `../../etc/passwd` leads out of the media root; the files of a dataset lie ",
        ),
        (
            &|index| {
                index["shards"][0]["compression"] = json!("snappy");
                index["shards"][0]["zip_data"] = json!({"basename": "x", "bytes": 1, "hashes": {}});
                index["shards"][0]["raw_data"]["basename"] = json!("gone");
            },
            "shard 0: it is compressed with snappy; use zstd, gz or no compression: ",
        ),
        (&|index| index["shards"][0]["raw_data"]["basename"] = json!("gone.mds"), "no such object"),
        (
            &|index| index["shards"][1] = index["shards"][0].clone(),
            "the recipe has 1 problem:\n  dataset.source: s3://bucket/data/shard.00000.mds is named twice",
        ),
    ] {
        let error = refusal(change);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_shard_that_is_cut_off_or_does_not_fit_its_columns_is_an_error_with_its_byte() {
    let key = "data/shard.00000.mds";
    let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut store = golden("plain");
        change(store.objects.get_mut(key).unwrap());
        dataset(&store, Fields::default()).unwrap_err().to_string()
    };
    let hint = "the shard is cut off or damaged: copy it again, or write it anew: \
                s3://bucket/data/shard.00000.mds at byte ";
    let size = golden("plain").objects[key].len();
    for length in 0..size {
        let error = refusal(&|bytes| bytes.truncate(length));
        let told = error.starts_with("the shard is damaged: ") && error.contains(hint);
        assert!(told || error.starts_with("the source has no samples"), "{length}: {error}");
    }
    let many = refusal(&|bytes| bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes()));
    assert!(
        many.starts_with("the shard is damaged: it claims 4294967295 rows, more than"),
        "{many}"
    );
    let shifted = refusal(&|bytes| bytes[8] ^= 1);
    assert!(shifted.starts_with("the shard is damaged: row 0 has other sizes than"), "{shifted}");
    let back = refusal(&|bytes| {
        let (first, second) = (bytes[4..8].to_vec(), bytes[8..12].to_vec());
        bytes[4..8].copy_from_slice(&second);
        bytes[8..12].copy_from_slice(&first);
    });
    assert!(back.starts_with("the shard is damaged: row 0 "), "{back}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut store = golden("plain");
        let shard = store.objects.get_mut("data/shard.00001.mds").unwrap();
        for (place, byte) in changes {
            let at = place.index(shard.len());
            shard[at] = byte;
        }
        if let Ok((data, _folder)) = dataset(&store, Fields::default()) {
            meanings(&data, &store);
        }
    }
}
