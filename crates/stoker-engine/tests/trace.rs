//! A trace of a real run: what it must hold, when it ends, and how it is refused.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stoker_engine::loader::{Loader, Next, Trace};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Fault, Faults, Operation, Rule, Server};

const PATIENCE: Duration = Duration::from_mins(1);

fn store() -> Server {
    let server =
        Server::start(&Config { unsigned: true, ..Config::default() }, Backend::memory()).unwrap();
    for (key, bytes) in ChatDataset::new(3, 64, 10_000..=60_000).objects() {
        server.put("bucket", &key, bytes).unwrap();
    }
    server
}

fn loader(server: &Server, indexes: &Path) -> Loader {
    let recipe = json!({
        "model": concat!(env!("CARGO_MANIFEST_DIR"), "/../../.setup/models/qwen3-vl"),
        "dataset": {"source": format!("s3://bucket/{CHAT_KEY}"), "index-dir": indexes},
        "fetch": {"endpoint": server.endpoint(), "anonymous": true, "attempts": 100},
        "pack": {"batch-size": 4},
        "engine": {"memory": "128MiB", "workers": 2},
    });
    Loader::open(Recipe::from_value(recipe).unwrap(), Rank { index: 0, of: 1 }).unwrap()
}

/// A loader and its trace, which is begun before anything came of the store.
fn traced_from_the_beginning(server: &Server, folder: &Path, steps: u64) -> (Loader, Trace) {
    // The index, which is then there.
    loader(server, folder).close();
    let (fault, operations) = (Fault::HangUp { at: None }, vec![Operation::Get]);
    let rules = vec![Rule { operations, ..Rule::new(fault) }];
    server.set_faults(&Faults { rules, ..Faults::default() }).unwrap();
    let loader = loader(server, folder);
    let trace = loader.trace(&folder.join("trace.json"), Some(steps)).unwrap();
    server.set_faults(&Faults::default()).unwrap();
    (loader, trace)
}

/// The places of some batches in the sequence, and their images.
fn take(loader: &Loader, batches: usize) -> (Vec<u64>, usize) {
    let next = || match loader.next(PATIENCE).unwrap() {
        Next::Batch(batch) => (batch.sequence(), batch.images() as usize),
        other => panic!("{other:?}"),
    };
    let (taken, images): (Vec<_>, Vec<_>) = (0..batches).map(|_| next()).unzip();
    (taken, images.iter().sum())
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn named<'a>(trace: &'a Value, name: &str) -> Vec<&'a Value> {
    let all = trace["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["ph"] == "X" && event["name"] == name).collect()
}

#[test]
fn a_trace_holds_the_steps_it_was_asked_for_and_what_was_done_for_them() {
    let (server, folder) = (store(), tempfile::tempdir().unwrap());
    let (loader, trace) = traced_from_the_beginning(&server, folder.path(), 6);
    let (taken, delivered) = take(&loader, 6);
    take(&loader, 3);
    let written = trace.stop().unwrap();
    assert_eq!((written.steps, written.dropped), (6, 0));
    assert!(trace.ended());
    let file = read(&folder.path().join("trace.json"));
    let blocked: Vec<_> = named(&file, "trainer blocked")
        .iter()
        .map(|e| e["args"]["batch"].as_u64().unwrap())
        .collect();
    assert_eq!(blocked, taken);
    for sequence in &taken {
        let life = named(&file, &format!("batch {sequence}"));
        assert_eq!(life.len(), 1, "batch {sequence}");
    }
    let of_these = |event: &&&Value| taken.contains(&event["args"]["batch"].as_u64().unwrap());
    assert_eq!(named(&file, "fill").iter().filter(of_these).count(), 6);
    // Each image of these batches was asked for, decoded in rows and written.
    let requests = named(&file, "request");
    let asked: BTreeSet<&str> =
        requests.iter().filter_map(|event| event["args"]["object"].as_str()).collect();
    let images = named(&file, "image");
    assert!(delivered >= 6 && images.len() >= delivered, "{} of {delivered}", images.len());
    for image in &images {
        let object = image["args"]["image"].as_str().unwrap().split_once(": ").unwrap().1;
        assert!(asked.contains(object), "{object}");
    }
    assert!(named(&file, "decode").len() >= images.len());
    assert!(named(&file, "tokenise").len() >= 6 * 4 && named(&file, "parse").len() >= 6 * 4);
    let all = file["traceEvents"].as_array().unwrap();
    let arrows = all.iter().filter(|event| event["ph"] == "s").count();
    assert_eq!(all.iter().filter(|event| event["ph"] == "f").count(), arrows);
    assert!(arrows >= 2 * delivered, "{arrows} for {delivered}");
    for count in ["ready batches", "requests in flight", "compressed bytes"] {
        assert!(all.iter().any(|event| event["ph"] == "C" && event["name"] == count), "{count}");
    }
}

#[test]
fn batches_that_are_given_up_are_gone_then() {
    let (server, folder) = (store(), tempfile::tempdir().unwrap());
    let (loader, path) = (loader(&server, folder.path()), folder.path().join("trace.json"));
    let trace = loader.trace(&path, None).unwrap();
    let start = loader.state();
    take(&loader, 3);
    loader.load_state(&start).unwrap();
    let again = take(&loader, 1).0[0];
    trace.stop().unwrap();
    let file = read(&path);
    // Each life is a span of its own: that of the run that was given up ends where it was.
    let lives = named(&file, &format!("batch {again}"));
    assert_eq!(lives.len(), 2, "{lives:?}");
    let end = |life: &Value| life["ts"].as_f64().unwrap() + life["dur"].as_f64().unwrap();
    let ends: Vec<f64> = lives.iter().map(|life| end(life)).collect();
    let latest = ends.iter().copied().fold(0.0, f64::max);
    let all = file["traceEvents"].as_array().unwrap();
    let batches = all.iter().filter(|event| {
        event["ph"] == "X" && event["name"].as_str().unwrap().starts_with("batch ")
    });
    let before = batches.filter(|life| end(life) < latest).count();
    assert!(before > 3, "those that were ready or begun too, not only the three that were taken");
}

#[test]
fn one_trace_at_a_time_is_recorded_and_each_ends_by_itself_or_with_its_loader() {
    let (server, folder) = (store(), tempfile::tempdir().unwrap());
    let loader = loader(&server, folder.path());
    let path = |name: &str| folder.path().join(name);
    let first = loader.trace(&path("first.json"), Some(1)).unwrap();
    let refused = loader.trace(&path("second.json"), None).err().unwrap().to_string();
    assert!(refused.contains("records a trace already: stop that one"), "{refused}");
    assert!(!path("second.json").exists());
    take(&loader, 1);
    while !first.ended() {
        std::thread::yield_now();
    }
    // Nobody holds this one; stopping the first again does not end it.
    drop(loader.trace(&path("second.json.gz"), None).unwrap());
    assert_eq!(first.stop().unwrap().steps, 1);
    take(&loader, 2);
    loader.close();
    let mut text = String::new();
    let packed = fs::File::open(path("second.json.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let second: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(second["stoker"]["steps"], 2);
}

#[test]
fn a_trace_that_can_t_be_written_is_refused_at_once_and_another_may_follow() {
    let (server, folder) = (store(), tempfile::tempdir().unwrap());
    let loader = loader(&server, folder.path());
    let nowhere = folder.path().join("none/trace.json");
    let refused = loader.trace(&nowhere, None).err().unwrap().to_string();
    let said = ["the trace can't be written: No such file", "none/trace.json; give another file"];
    assert!(said.iter().all(|words| refused.contains(words)), "{refused}");
    let refused = loader.trace(&folder.path().join("trace.json"), Some(0)).err().unwrap();
    assert_eq!(refused.to_string(), "a trace has 1 step or more");
    let trace = loader.trace(&folder.path().join("trace.json"), Some(1)).unwrap();
    take(&loader, 1);
    assert_eq!(trace.stop().unwrap().steps, 1);
}
