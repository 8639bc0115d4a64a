//! Memory is mapped once: a loader that has run for a while touches no fresh page for what it decodes
//! and writes. A binary of its own, since it reads the page faults of the process.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[expect(dead_code, reason = "it has no use for the data set on disk")]
mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use stoker_engine::loader::{Loader, Next};
use stoker_engine::sample::Rank;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Server};

/// Batches of one count of faults.
const WINDOW: usize = 50;
/// Where reads come late, more is brought in ahead, in slots that are fresh once. So this many windows may
/// pass until there are `STEADY` in a row that see next to nothing of it.
const WINDOWS: usize = 10;
const STEADY: usize = 3;

/// Fresh pages of the process so far, of 4 KiB or more.
fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Faults and pages of batches of each window, until it is steady, over photos in a store of this process.
fn windows(
    server: &Server,
    source: &Path,
    max_pixels: u64,
    few: impl Fn(u64) -> u64,
) -> Vec<(u64, u64)> {
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
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let (before, mut bytes) = (faults(), 0);
        for _ in 0..WINDOW {
            let Next::Batch(batch) = loader.next(Duration::from_mins(1)).unwrap() else {
                panic!("a batch within a minute")
            };
            bytes += batch.tensors().iter().map(|tensor| tensor.range().len() as u64).sum::<u64>();
        }
        let (fresh, pages) = (faults() - before, bytes / 4096);
        windows.push((fresh, pages));
        if is_steady(&windows, &few) {
            break;
        }
    }
    windows
}

/// Whether the last windows have at most `few` faults for their pages.
fn is_steady(windows: &[(u64, u64)], few: impl Fn(u64) -> u64) -> bool {
    // In the first, all that there is is fresh.
    let last = windows[1..].last_chunk::<STEADY>();
    last.is_some_and(|last| last.iter().all(|(fresh, pages)| *fresh <= few(*pages)))
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
    // What is left is of the store, of the requests and of their bytes.
    for (max_pixels, share) in [(65_536, 1.0), (786_432, 0.01)] {
        let few = |pages: u64| ((pages as f64 * share) as u64).min(20_000);
        let windows = windows(&server, &source, max_pixels, few);
        println!("{max_pixels} pixels, (faults, pages of batches): {windows:?}");
        assert!(is_steady(&windows, few), "{windows:?}");
    }
}
