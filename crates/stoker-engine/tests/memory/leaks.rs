//! Nothing grows with the number of batches: as many are drained as a trainer takes in an hour, and
//! the memory, open files and threads of the process stay what they were.

use std::fs;
use std::time::Duration;

use serde_json::json;
use stoker_engine::loader::{Loader, Next};
use stoker_engine::sample::Rank;

use crate::alone::{MIB, alone, status};
use crate::common;

/// Two a second for an hour.
const BATCHES: usize = 7200;
const LOOKS: usize = 24;
/// Bytes that memory may grow by from look to look in the second half: the allocator's slack. A leak
/// of a kilobyte a batch is 300 KB a look.
const GROWTH: f64 = 100e3;

/// Memory, open files and threads of this process.
#[derive(Clone, Copy, Debug)]
struct Look {
    bytes: u64,
    files: usize,
    threads: usize,
}

impl Look {
    fn now() -> Self {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        let (files, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
        Self { bytes: status("VmRSS"), files, threads }
    }
}

/// What grows in the second half of the looks, when all that is made once is made.
fn growing(looks: &[Look]) -> Vec<&'static str> {
    let half = &looks[looks.len() / 2..];
    // The median step, so that one step of the allocator is no slope.
    let mut steps: Vec<f64> =
        half.windows(2).map(|pair| pair[1].bytes as f64 - pair[0].bytes as f64).collect();
    steps.sort_by(f64::total_cmp);
    let mean = steps.iter().sum::<f64>() / steps.len() as f64;
    let grows = steps[steps.len() / 2] > GROWTH || mean > 3.0 * GROWTH;
    let (first, last) = (half[0], half[half.len() - 1]);
    let found = [
        ("memory", grows),
        ("files", last.files > first.files + 2),
        ("threads", last.threads > first.threads),
    ];
    found.into_iter().filter_map(|(name, grows)| grows.then_some(name)).collect()
}

/// Drains batches of small images, and looks from time to time; `each` is called after each.
fn drained(mut each: impl FnMut(usize)) -> Vec<Look> {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = common::recipe(
        &source,
        json!({
            "vision": {"pixels": "u8", "min-pixels": 4096, "max-pixels": 4096},
            "pack": {"batch-size": 1},
            "engine": {"memory": "32MiB", "workers": 2, "bad-sample-limit": 1.0},
        }),
    );
    let loader = Loader::open(recipe, Rank { index: 0, of: 1 }).unwrap();
    let mut looks = Vec::new();
    for batch in 0..BATCHES {
        match loader.next(Duration::from_mins(1)).unwrap() {
            Next::Batch(taken) => assert_eq!(taken.samples().len(), 1),
            _ => panic!("a batch within a minute"),
        }
        each(batch);
        if (batch + 1) % (BATCHES / LOOKS) == 0 {
            looks.push(Look::now());
        }
    }
    loader.close();
    let memory = loader.report().memory;
    assert_eq!((memory.compressed_bytes, memory.arena_bytes, memory.leased_bytes), (0, 0, 0));
    let (first, last) = (looks[looks.len() / 2], looks[looks.len() - 1]);
    println!("{first:?} at half time, {last:?} in the end");
    looks
}

#[test]
#[ignore = "looks at its process: run by the test below, alone"]
fn an_hour() {
    let looks = drained(|_| {});
    assert!(growing(&looks).is_empty(), "{:?} grow: {looks:#?}", growing(&looks));
}

#[test]
fn an_hour_of_batches_leaves_memory_files_and_threads_as_they_were() {
    println!("{}", alone("leaks::an_hour"));
}

/// Leaks of a kilobyte a batch, and of a file in a hundred: were they ours, the test would tell.
#[test]
fn leaks_are_noticed() {
    let flat = Look { bytes: 100 * MIB, files: 20, threads: 9 };
    let look = |number: usize, bytes: usize, files: usize, threads: usize| Look {
        bytes: flat.bytes + (number * bytes) as u64,
        files: flat.files + number * files,
        threads: flat.threads + number * threads,
    };
    let each = BATCHES / LOOKS;
    let looks = |bytes: usize, files: usize, threads: usize| -> Vec<Look> {
        (0..LOOKS).map(|number| look(number, bytes * each, files, threads)).collect()
    };
    assert!(growing(&looks(0, 0, 0)).is_empty());
    assert_eq!(growing(&looks(1024, 0, 0)), ["memory"]);
    assert_eq!(growing(&looks(0, each / 100, 0)), ["files"]);
    assert_eq!(growing(&looks(0, 0, 1)), ["threads"]);
}

#[test]
#[ignore = "looks at its process: run by the test below, alone"]
fn an_hour_that_leaks() {
    let mut kept = Vec::new();
    let looks = drained(|batch| {
        kept.push(vec![1_u8; 1024]);
        if batch % 100 == 0 {
            std::mem::forget(fs::File::open("/dev/null").unwrap());
        }
    });
    assert_eq!(growing(&looks), ["memory", "files"], "{looks:#?}");
}

#[test]
fn a_leak_of_a_kilobyte_a_batch_is_noticed() {
    println!("{}", alone("leaks::an_hour_that_leaks"));
}
