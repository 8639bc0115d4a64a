//! Memory stays under the limit, whatever the data and the trainer do. A binary of its own, since it
//! reads the peak memory of the process.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]
#![expect(clippy::print_stdout, reason = "figures for people")]

#[path = "../common/mod.rs"]
mod common;

mod alone;
mod corpus;
mod cycles;
mod inputs;
mod leaks;
mod tables;

use std::time::Duration;

use serde_json::json;
use stoker_engine::loader::{Loader, Next};
use stoker_engine::sample::Rank;

use alone::{MIB, overhead, status};

/// 2,000 samples over photos, with a consumer that sleeps at first and then takes all.
#[test]
fn draining_2000_samples_stays_under_the_limit_and_a_fixed_overhead() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = common::recipe(
        &source,
        json!({
            "vision": {"pixels": "f32", "min-pixels": 262_144, "max-pixels": 1_048_576},
            "pack": {"batch-size": 4},
            "engine": {"memory": "256MiB", "workers": 2},
        }),
    );
    let loader = Loader::open(recipe, Rank { index: 0, of: 1 }).unwrap();
    let opened = status("VmHWM");
    let (mut samples, mut batches) = (0, 0);
    while samples < 2000 {
        match loader.next(Duration::from_mins(1)).unwrap() {
            Next::Batch(batch) => samples += batch.samples().len(),
            _ => panic!("a batch within a minute"),
        }
        batches += 1;
        if batches == 3 {
            std::thread::sleep(Duration::from_secs(2));
        }
    }
    let grown = status("VmHWM") - opened;
    let report = loader.report();
    println!(
        "peak {} MiB over the {} MiB after opening; arenas {} MiB",
        grown / MIB,
        opened / MIB,
        report.memory.peak_arena_bytes / MIB
    );
    assert!(report.memory.peak_arena_bytes <= 256 * MIB);
    assert!(grown <= 256 * MIB + overhead(256 * MIB, 2, 0), "{} MiB", grown / MIB);
}
