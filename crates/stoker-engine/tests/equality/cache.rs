//! With a local cache the batches are the same, and the store is asked once.

use serde_json::{Value, json};
use stoker_engine::loader::Loader;
use stoker_engine::metrics::Report;
use stoker_s3::{Backend, Config, Server};

use super::formats::{batches, recipe, stored};
use super::{Seen, drain, rank};

#[test]
fn a_cached_epoch_is_the_same_bytes_without_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { unsigned: true, ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    let packs = [json!({"batch-size": 3}), json!({"max-tokens": 2048})];
    for ((source, objects), pack) in stored().into_iter().zip(packs) {
        for (key, bytes) in objects {
            server.put("data", &key, bytes).unwrap();
        }
        one(&server, folder.path(), source, &pack);
    }
}

fn one(server: &Server, folder: &std::path::Path, source: &str, pack: &Value) {
    let name = name_of(source, pack);
    let made = |epochs: u64, cache: Option<&str>| {
        let mut fetch = json!({"endpoint": server.endpoint(), "anonymous": true});
        if let Some(cache) = cache {
            fetch["cache"] = json!({"path": folder.join(cache), "size": "64MiB"});
        }
        let plan = json!({"epochs": epochs, "seed": 3});
        let more = json!({"fetch": fetch, "plan": plan, "pack": pack});
        recipe(&format!("s3://data/{source}"), &folder.join(format!("index-{name}")), &more)
    };
    let expected = batches(made(2, None));
    let whole_run = |epochs: u64| -> (Vec<Seen>, Report, u64) {
        let before = server.stats().requests;
        let loader = Loader::open(made(epochs, Some(&name)), rank(0, 1)).unwrap();
        let seen = drain(&loader, usize::MAX);
        loader.close();
        (seen, loader.report(), server.stats().requests - before)
    };
    let (first, report, _) = whole_run(1);
    assert!(first == batches(made(1, None)), "{source}: other batches");
    let cache = report.fetch.cache;
    assert!(cache.admitted > 0 && (cache.refused, cache.dropped, cache.failed) == (0, 0, 0));
    // What it takes to open the data: versions are asked for, and nothing is read.
    let before = server.stats().requests;
    Loader::open(made(1, Some(&name)), rank(0, 1)).unwrap().close();
    let opening = server.stats().requests - before;
    let (both, report, requests) = whole_run(2);
    assert!(both == expected, "{source}: other batches");
    assert_eq!(requests, opening, "{source}, {pack}: {report}");
    let cache = report.fetch.cache;
    assert!(cache.hits > 0 && (cache.misses, cache.damaged, cache.failed) == (0, 0, 0), "{report}");
    assert_eq!((report.memory.compressed_bytes, report.memory.leased_bytes), (0, 0));
    assert!(report.to_string().contains(&format!("cache: {} hits", cache.hits)), "{report}");
}

/// A name for the folders of a case.
fn name_of(source: &str, pack: &Value) -> String {
    let name = format!("{source}{pack}");
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}
