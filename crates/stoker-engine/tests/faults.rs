//! Memory is mapped once: a loader that has run for a while touches no fresh page for what it decodes
//! and writes. A binary of its own, since it reads the page faults of the process.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[expect(dead_code, reason = "it has no use for the data set on disk")]
mod common;

use std::fs;
use std::time::Duration;

use serde_json::json;
use stoker_engine::loader::{Loader, Next};
use stoker_engine::sample::Rank;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Server};

const WARM_UP: usize = 60;
const STEADY: usize = 50;

/// Fresh pages of the process so far, of 4 KiB or more.
fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Faults and bytes of the steady state, over photos in a store of this process.
fn steady(server: &Server, source: &std::path::Path, max_pixels: u64) -> (u64, u64) {
    let recipe = common::recipe(
        source,
        json!({
            "dataset": {"media-root": "s3://media/"},
            "fetch": {"endpoint": server.endpoint(), "anonymous": true},
            "vision": {"pixels": "f32", "min-pixels": max_pixels / 2, "max-pixels": max_pixels},
            "pack": {"batch-size": 4},
            "engine": {"memory": "512MiB", "workers": 2},
        }),
    );
    let loader = Loader::open(recipe, Rank { index: 0, of: 1 }).unwrap();
    let (mut before, mut bytes) = (0, 0);
    for step in 0..WARM_UP + STEADY {
        if step == WARM_UP {
            before = faults();
        }
        let Next::Batch(batch) = loader.next(Duration::from_mins(1)).unwrap() else {
            panic!("a batch within a minute")
        };
        if step >= WARM_UP {
            bytes += batch.tensors().iter().map(|tensor| tensor.range().len() as u64).sum::<u64>();
        }
    }
    (faults() - before, bytes)
}

#[test]
fn no_page_is_fresh_in_the_steady_state_however_many_pixels_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { unsigned: true, ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    for (key, bytes) in ChatDataset::new(3, 40, 500_000..=900_000).objects() {
        if key == CHAT_KEY {
            fs::write(folder.path().join(CHAT_KEY), bytes).unwrap();
        } else {
            server.put("media", &key, bytes).unwrap();
        }
    }
    let source = folder.path().join(CHAT_KEY);
    for max_pixels in [65_536, 786_432] {
        let (fresh, bytes) = steady(&server, &source, max_pixels);
        let pages = bytes / 4096;
        println!("{max_pixels} pixels: {fresh} faults for {pages} pages of batches");
        // What is there is of the store, of the requests and of their bytes.
        assert!(fresh < 20_000, "{fresh} faults");
        assert!(max_pixels < 100_000 || fresh < pages / 100, "{fresh} of {pages} pages");
    }
}
