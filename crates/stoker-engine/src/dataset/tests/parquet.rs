//! Parquet shards mean what pyarrow wrote, and hostile ones are refused in words.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::super::Dataset;
use super::forms::short;
use super::{Bucket, config, files, gzip, open};
use crate::error::Result;
use crate::recipe::{self, Fields};

const KEY: &str = "data/x.parquet";
const URI: &str = "s3://bucket/data/x.parquet";

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/parquet")
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(corpus().join(format!("{name}.parquet"))).unwrap()
}

fn settings(folder: &TempDir, fields: Fields) -> recipe::Dataset {
    recipe::Dataset { source: vec![URI.to_owned()], fields, ..config(folder) }
}

fn dataset(fields: Fields, bytes: &[u8]) -> Result<(Dataset, Bucket, TempDir)> {
    let (folder, store) = (tempfile::tempdir().unwrap(), Bucket::new([(KEY, bytes)]));
    Ok((open(&settings(&folder, fields), &store)?, store, folder))
}

fn meanings(data: &Dataset, store: &Bucket) -> Vec<String> {
    let meaning = |row| match store.sample(data, row) {
        Ok(sample) => short(&sample),
        Err(flaw) => flaw.code.to_owned(),
    };
    (0..data.rows()).map(meaning).collect()
}

/// How the files with odd column names are read.
fn fields(name: &str) -> Fields {
    let text = |name: &str| Some(name.to_owned());
    match name {
        "vqa" => Fields {
            images: Some(vec!["photo".to_owned(), "map".to_owned()]),
            question: text("query"),
            answer: text("label"),
            messages: None,
        },
        "captions" => Fields { answer: text("text"), ..Fields::default() },
        _ => Fields::default(),
    }
}

#[test]
fn every_layout_means_what_was_written() {
    let rows = fs::read_to_string(corpus().join("rows.json")).unwrap();
    let rows: serde_json::Map<String, Value> = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows.len(), 23);
    for (name, expected) in rows {
        let (data, store, folder) = dataset(fields(&name), &golden(&name)).unwrap();
        let expected: Vec<String> = serde_json::from_value(expected).unwrap();
        assert_eq!(meanings(&data, &store), expected, "{name}");
        assert_eq!(files(&folder).len(), 2, "an index and the rows");
        let again = open(&settings(&folder, fields(&name)), &store).unwrap();
        assert_eq!(again.fingerprint(), data.fingerprint());
        assert_eq!(meanings(&again, &store), expected, "{name}, opened again");
        let last = data.rows() - 1;
        assert_eq!(data.origin(last), format!("{URI}, row {last}"));
    }
}

#[test]
fn columns_that_nobody_wants_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = golden("llava_plain");
    let store = Bucket::new([(KEY, bytes.clone())]);
    let mut told = Vec::new();
    let config = settings(&folder, Fields::default());
    Dataset::open_from(&config, &store, &mut |done, all| told.push((done, all))).unwrap();
    let size = bytes.len() as u64;
    assert_eq!(told.last(), Some(&(size, size)));
    let index = files(&folder).into_iter().find(|name| name.ends_with("lines")).unwrap();
    let taken = fs::read(folder.path().join(index)).unwrap();
    let taken = String::from_utf8_lossy(&taken);
    assert!(taken.contains("It is 3.") && !taken.contains("id-3"), "{taken}");
}

#[test]
fn other_fields_take_other_rows_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = Bucket::new([(KEY, golden("vqa"))]);
    let one = |images: &[&str]| Fields {
        images: Some(images.iter().map(ToString::to_string).collect()),
        ..fields("vqa")
    };
    let map = open(&settings(&folder, one(&["map"])), &store).unwrap();
    let both = open(&settings(&folder, fields("vqa")), &store).unwrap();
    assert_eq!(meanings(&map, &store)[0], "user: [M]|Where? / assistant= Here.");
    assert_eq!(meanings(&both, &store)[0], "user: [P]|[M]|Where? / assistant= Here.");
    let swapped = open(&settings(&folder, one(&["map", "photo"])), &store).unwrap();
    assert_eq!(meanings(&swapped, &store)[0], "user: [M]|[P]|Where? / assistant= Here.");
}

#[test]
fn a_file_without_what_is_needed_is_refused_with_its_columns() {
    let refusal = |name: &str, fields| {
        let error = dataset(fields, &golden(name)).unwrap_err().to_string();
        let told = error.strip_suffix(&format!(": {URI}")).unwrap();
        let hint = "; dataset.fields says which columns are read under other names";
        told.strip_suffix(hint).unwrap_or(told).to_owned()
    };
    assert_eq!(
        refusal("captions", Fields::default()),
        "there is no column `messages` or `conversations` or `texts`; the columns are image, text"
    );
    assert_eq!(
        refusal("llava", Fields { messages: Some("chat".into()), ..Fields::default() }),
        "there is no column `chat`; the columns are id, image, conversations, data_source, embedding"
    );
    assert_eq!(
        refusal("llava", Fields { images: Some(vec!["photo".into()]), ..Fields::default() }),
        "there is no column `photo`; the columns are id, image, conversations, data_source, embedding"
    );
    let floats = Fields { images: Some(vec!["embedding".into()]), ..Fields::default() };
    let told = refusal("llava", floats);
    let start = "the column `embedding` holds no images and no references to them: it is List(";
    assert!(told.starts_with(start), "{told}");
}

/// A file with one row of text columns of these names, and a column of numbers.
fn written(names: &[&str], more: Option<(&str, DataType)>) -> Vec<u8> {
    let mut fields: Vec<Field> = names.iter().copied().map(text_field).collect();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for name in names {
        let mut column = StringBuilder::new();
        column.append_value(format!("[{{\"role\": \"user\", \"content\": \"{name}\"}}]"));
        columns.push(Arc::new(column.finish()));
    }
    if let Some((name, kind)) = more {
        fields.push(Field::new(name, kind.clone(), true));
        columns.push(arrow_array::new_null_array(&kind, 1));
    }
    packed(fields, columns)
}

fn text_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

/// A file of one batch.
fn packed(fields: Vec<Field>, columns: Vec<ArrayRef>) -> Vec<u8> {
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn columns_of_the_wrong_kind_or_of_one_name_are_refused() {
    let refusal = |bytes: &[u8]| dataset(Fields::default(), bytes).unwrap_err().to_string();
    let twice = refusal(&written(&["messages", "messages"], None));
    assert!(twice.starts_with("two columns are named `messages`; "), "{twice}");
    let times = DataType::Timestamp(TimeUnit::Millisecond, None);
    let times = refusal(&written(&["messages"], Some(("tools", times))));
    let expected = "the column `tools` holds what is no text, number, list or struct: it is ";
    assert!(times.starts_with(expected), "{times}");
    let bytes = refusal(&written(&["messages"], Some(("videos", DataType::Binary))));
    assert!(bytes.starts_with("the column `videos` holds bytes: it is Binary; "), "{bytes}");
    let numbers = refusal(&written(&["messages"], Some(("image", DataType::Int32))));
    assert!(numbers.starts_with("the column `image` holds no images and no refer"), "{numbers}");
}

#[test]
fn what_is_no_parquet_file_is_refused_with_a_word_on_what_it_is() {
    let good = golden("llava");
    let end = good.len();
    let with_end = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let damaged = "the file is cut off or damaged: copy it again, or write it anew";
    let cases: [(Vec<u8>, String); 9] = [
        (gzip(&good), "the source is compressed with gzip; unpack it".into()),
        (
            b"{\"a\": 1}\n".to_vec(),
            "the source is JSON, not a Parquet file; name it *.jsonl".into(),
        ),
        (b"hello".to_vec(), "the source is no Parquet file; check dataset.source".into()),
        (b"PARE1234".to_vec(), "the source is an encrypted Parquet file, not".into()),
        (b"PAR1PAR1".to_vec(), format!("the file has only 8 bytes; {damaged}")),
        (
            with_end(&|bytes| bytes.truncate(end - 1)),
            format!("the file does not end as a Parquet file does; {damaged}"),
        ),
        (
            with_end(&|bytes| bytes[end - 1] = b'E'),
            "the footer is encrypted; write the file without encryption".into(),
        ),
        (
            with_end(&|bytes| bytes[end - 8..end - 4].copy_from_slice(&u32::MAX.to_le_bytes())),
            "the footer claims 4.0 GiB, and up to 64.0 MiB are read; write files of fewer".into(),
        ),
        (
            with_end(&|bytes| bytes[end - 8..end - 4].copy_from_slice(&50_000_u32.to_le_bytes())),
            format!("the footer claims 50000 bytes, more than there are; {damaged}"),
        ),
    ];
    for (bytes, expected) in cases {
        let error = dataset(Fields::default(), &bytes).unwrap_err().to_string();
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.ends_with(URI), "{error}");
    }
}

#[test]
fn a_file_that_lost_bytes_is_never_read() {
    let good = golden("llava_groups");
    for length in (0..good.len()).step_by(97) {
        let cut = [&good[..length], &good[good.len() - 8..]].concat();
        assert!(dataset(Fields::default(), &cut).is_err(), "{length}");
        assert!(dataset(Fields::default(), &good[..length]).is_err(), "{length}");
    }
}

#[test]
fn larger_datasets_than_may_be_copied_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let store = Bucket::new([(KEY, golden("llava"))]);
    let limited = recipe::Dataset { max_copied: 3000, ..settings(&folder, Fields::default()) };
    let error = open(&limited, &store).unwrap_err().to_string();
    let expected = format!(
        "rows of Parquet files can't be read at random, and all shards have 3.0 KiB together: up to \
         2.9 KiB are copied to the disk; raise dataset.max-copied if there is room where the index \
         lies, or store the data as plain tar archives: {URI}"
    );
    assert_eq!(error, expected);
}

#[test]
fn what_rows_unpack_to_is_limited_for_all_shards_together() {
    let folder = tempfile::tempdir().unwrap();
    // A thousand rows of the same text: one entry of a dictionary.
    let text = format!("[{{\"role\": \"user\", \"content\": \"{}\"}}]", "x".repeat(1 << 10));
    let mut column = StringBuilder::new();
    (0..1000).for_each(|_| column.append_value(&text));
    let shard = packed(vec![text_field("messages")], vec![Arc::new(column.finish())]);
    assert!(shard.len() < 64 << 10, "{}", shard.len());
    let keys = (0..3).map(|number| format!("data/{number}.parquet"));
    let store = Bucket::new(keys.map(|key| (key, shard.clone())));
    let source = vec!["s3://bucket/data/{0..2}.parquet".to_owned()];
    let config = |max_copied| recipe::Dataset {
        source: source.clone(),
        max_copied,
        ..settings(&folder, Fields::default())
    };
    let error = open(&config(2 << 20), &store).unwrap_err().to_string();
    assert!(error.contains("the shards unpack to more than 2.0 MiB; raise"), "{error}");
    assert_eq!(open(&config(4 << 20), &store).unwrap().rows(), 3000);
}

#[test]
fn the_fingerprint_is_of_the_file_and_not_of_its_place() {
    let of = |name: &str| dataset(Fields::default(), &golden(name)).unwrap().0.fingerprint();
    assert_eq!(of("llava"), of("codec_snappy"), "the same file");
    assert_ne!(of("llava"), of("llava_groups"));
    assert_ne!(of("llava"), of("codec_zstd"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_or_reserve_much(
        name in prop::sample::select(vec!["llava", "cauldron", "llava_v2", "codec_zstd", "messages"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_footer in any::<bool>(),
    ) {
        let mut bytes = golden(name);
        let end = bytes.len() - 8;
        let footer = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
        let begin = if in_footer { end - footer } else { 4 };
        for (place, byte) in changes {
            let at = begin + place.index(end - begin);
            bytes[at] = byte;
        }
        if let Ok((data, store, _folder)) = dataset(Fields::default(), &bytes) {
            meanings(&data, &store);
        }
    }
}
