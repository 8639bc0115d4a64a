//! The same samples give the same batches, whatever they are stored as and wherever.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use stoker_engine::loader::Loader;
use stoker_engine::recipe::Recipe;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Server};

use super::{Seen, common, drain, rank, reference};

pub(super) const SAMPLES: usize = 40;

/// Files by name.
pub(super) type Objects = Vec<(String, Vec<u8>)>;

/// A chat and its images.
pub(super) struct Chat {
    pub(super) line: String,
    pub(super) images: Vec<(String, Vec<u8>)>,
}

pub(super) fn chats() -> Vec<Chat> {
    let data = ChatDataset::new(11, SAMPLES, 4_000..=40_000);
    let objects: std::collections::BTreeMap<String, Vec<u8>> = data.objects().collect();
    let lines = String::from_utf8(objects[CHAT_KEY].clone()).unwrap();
    let chats = lines.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let parts =
            row["messages"].as_array().unwrap().iter().filter_map(|it| it["content"].as_array());
        let names = parts.flatten().filter_map(|part| part["image"].as_str()).map(str::to_owned);
        let images = names.map(|name| (name.clone(), objects[&name].clone()));
        Chat { line: line.to_owned(), images: images.collect() }
    });
    chats.collect()
}

pub(super) fn jsonl(chats: &[Chat]) -> Objects {
    let lines: Vec<&str> = chats.iter().map(|chat| chat.line.as_str()).collect();
    let images = chats.iter().flat_map(|chat| chat.images.clone());
    images.chain([("train.jsonl".to_owned(), lines.join("\n").into_bytes())]).collect()
}

pub(super) fn tar(chats: &[Chat], first: usize) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: String, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes).unwrap();
    };
    for (number, chat) in chats.iter().enumerate() {
        let key = format!("{:06}", first + number);
        for (place, (_, bytes)) in chat.images.iter().enumerate() {
            add(format!("{key}.{place}.jpg"), bytes);
        }
        add(format!("{key}.json"), chat.line.as_bytes());
    }
    builder.into_inner().unwrap()
}

pub(super) fn parquet(chats: &[Chat]) -> Vec<u8> {
    let image = Fields::from(vec![
        Field::new("bytes", DataType::Binary, true),
        Field::new("path", DataType::Utf8, true),
    ]);
    let mut messages = StringBuilder::new();
    let mut images = ListBuilder::new(StructBuilder::from_fields(image, 0));
    for chat in chats {
        let row: Value = serde_json::from_str(&chat.line).unwrap();
        messages.append_value(row["messages"].to_string());
        for (name, bytes) in &chat.images {
            let parts = images.values();
            parts.field_builder::<BinaryBuilder>(0).unwrap().append_value(bytes);
            parts.field_builder::<StringBuilder>(1).unwrap().append_value(name);
            parts.append(true);
        }
        images.append(true);
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(messages.finish()), Arc::new(images.finish())];
    let fields = ["messages", "images"].into_iter().zip(&columns);
    let fields = fields.map(|(name, it)| Field::new(name, it.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(7)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, Some(groups)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Each way to store the samples: what to name in a recipe, and the objects.
fn ways(chats: &[Chat]) -> Vec<(&'static str, Objects)> {
    let halves = chats.split_at(SAMPLES / 3);
    let named = |names: [&str; 2], bytes: [Vec<u8>; 2]| {
        names.map(str::to_owned).into_iter().zip(bytes).collect::<Vec<_>>()
    };
    let tars = || [tar(halves.0, 0), tar(halves.1, SAMPLES / 3)];
    let zstd = |bytes: Vec<u8>| zstd::encode_all(bytes.as_slice(), 1).unwrap();
    let tables = || [parquet(halves.0), parquet(halves.1)];
    vec![
        ("train.jsonl", jsonl(chats)),
        ("one.tar", vec![("one.tar".to_owned(), tar(chats, 0))]),
        ("part-{0..1}.tar", named(["part-0.tar", "part-1.tar"], tars())),
        ("packed-*.tar.zst", named(["packed-a.tar.zst", "packed-b.tar.zst"], tars().map(zstd))),
        ("table.parquet", vec![("table.parquet".to_owned(), parquet(chats))]),
        ("t/*.parquet", named(["t/0.parquet", "t/1.parquet"], tables())),
    ]
}

/// The same samples as lines with images beside them, and as archives.
pub(super) fn stored() -> Vec<(&'static str, Objects)> {
    let ways = ways(&chats()).into_iter();
    ways.filter(|(source, _)| ["train.jsonl", "part-{0..1}.tar"].contains(source)).collect()
}

pub(super) fn recipe(source: &str, indexes: &Path, more: &Value) -> Recipe {
    let mut value = json!({
        "model": common::model("qwen3-vl"),
        "dataset": {"source": source, "index-dir": indexes},
        "plan": {"epochs": 1, "shuffle": "none"},
        "vision": {"min-pixels": 4096, "max-pixels": 65536},
        "pack": {"batch-size": 3},
        "engine": {"on-bad-sample": "stop", "memory": "64MiB"},
    });
    for (section, keys) in more.as_object().unwrap() {
        value[section] = keys.clone();
    }
    Recipe::from_value(value).unwrap()
}

pub(super) fn batches(recipe: Recipe) -> Vec<Seen> {
    drain(&Loader::open(recipe, rank(0, 1)).unwrap(), usize::MAX)
}

#[test]
fn the_same_samples_are_the_same_batches_in_every_format_on_a_disk_and_in_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let chats = chats();
    let config = Config { unsigned: true, ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    let store = json!({"fetch": {"endpoint": server.endpoint(), "anonymous": true}});
    let mut expected: Option<Vec<Seen>> = None;
    for (source, objects) in ways(&chats) {
        for (key, bytes) in objects {
            let path: PathBuf = folder.path().join("data").join(&key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &bytes).unwrap();
            server.put("data", &key, bytes).unwrap();
        }
        let indexes = folder.path().join("indexes");
        let local = folder.path().join("data").join(source).display().to_string();
        let remote = format!("s3://data/{source}");
        for (source, more) in [(local, json!({})), (remote, store.clone())] {
            let recipe = recipe(&source, &indexes, &more);
            let steps = SAMPLES.div_ceil(3) as u64;
            let expected = expected.get_or_insert_with(|| reference(recipe.clone(), 0..steps));
            assert!(batches(recipe) == *expected, "{source}: other batches");
        }
    }
}

/// Two archives of 13 and 27 samples in a folder; what names both.
fn archives(folder: &Path) -> String {
    let chats = chats();
    let (first, second) = chats.split_at(SAMPLES / 3);
    std::fs::write(folder.join("0.tar"), tar(first, 0)).unwrap();
    std::fs::write(folder.join("1.tar"), tar(second, first.len())).unwrap();
    folder.join("{0..1}.tar").display().to_string()
}

#[test]
fn a_block_shuffle_goes_from_shard_to_shard() {
    let folder = tempfile::tempdir().unwrap();
    let source = archives(folder.path());
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..8 {
        let plan = json!({"epochs": 1, "shuffle": "block", "window": 1, "seed": seed});
        let seen = batches(recipe(&source, folder.path(), &json!({"plan": plan})));
        let rows: Vec<u64> = seen.iter().flat_map(|it| &it.samples).map(|it| it.1).collect();
        let (before, first) = if rows[0] < 13 { (0, 13) } else { (13, 27) };
        let mut shard = rows[..first].to_vec();
        assert!(!shard.is_sorted(), "the rows of a shard are mixed");
        shard.sort_unstable();
        assert_eq!(shard, (before..before + first as u64).collect::<Vec<_>>(), "seed {seed}");
        orders.insert(before);
    }
    assert_eq!(orders.len(), 2, "the shards are mixed");
}

#[test]
fn a_cursor_is_refused_where_other_fields_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let source = archives(folder.path());
    let table = folder.path().join("x.parquet").display().to_string();
    std::fs::write(&table, parquet(&chats())).unwrap();
    for source in [source, table] {
        let one = |fields: Value| {
            let dataset = json!({"source": source, "index-dir": folder.path(), "fields": fields});
            recipe(&source, folder.path(), &json!({"dataset": dataset}))
        };
        let many = |fields: Value| {
            let mut value = one(fields).to_value();
            let mut dataset = value.as_object_mut().unwrap().remove("dataset").unwrap();
            dataset["name"] = json!("a");
            let mut other = dataset.clone();
            (other["name"], other["fields"]) = (json!("b"), json!({}));
            value["datasets"] = json!([dataset, other]);
            Recipe::from_value(value).unwrap()
        };
        let fields = json!({"messages": "messages"});
        for (recipes, path) in [
            ([one(json!({})), one(fields.clone())], "dataset"),
            ([many(json!({})), many(fields)], "datasets.a"),
        ] {
            let [usual, named] = recipes.map(|it| Loader::open(it, rank(0, 1)).unwrap());
            usual.load_state(&usual.state()).unwrap();
            let error = named.load_state(&usual.state()).unwrap_err().to_string();
            assert!(error.contains(&format!("does not fit: {path}")), "{error}");
        }
    }
}
