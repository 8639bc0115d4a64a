//! A process for a measurement: what it held before, what it holds, and what it is left with.

use std::fs;
use std::process::Command;
use std::time::Duration;

use stoker_engine::error::Result;
use stoker_engine::loader::{Loader, Next};
use stoker_engine::metrics::Report;
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;

pub(crate) const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_mins(1);

/// What the engine holds beyond `engine.memory`: what docs/guides/hostile-data.md states, for that
/// many workers and an eighth of the memory for large images.
pub(crate) fn overhead(memory: u64, workers: u64, longest_line: u64) -> u64 {
    64 * MIB + memory / 8 + workers * 32 * MIB + 64 * longest_line
}

/// A line of `/proc/self/status`, in bytes.
pub(crate) fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Runs a test that is ignored otherwise in a process of its own; what it printed.
pub(crate) fn alone(name: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "--nocapture", name];
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// What became of a run.
pub(crate) struct Ran {
    pub(crate) samples: usize,
    pub(crate) report: Report,
    /// How many bytes the process grew by, at most.
    pub(crate) grown: u64,
}

/// Opens a loader, sleeps, takes all there is, and closes it: the gauges end at nothing.
pub(crate) fn run(recipe: Recipe, asleep: Duration) -> Result<Ran> {
    let (memory, before) = (recipe.engine.memory.unwrap(), status("VmRSS"));
    let loader = Loader::open(recipe, Rank { index: 0, of: 1 })?;
    // Begins the work, of which more is done while the trainer sleeps.
    let mut next = loader.next(PATIENCE)?;
    // Building the tokenizer takes some for a moment, and is over when there is a batch.
    let opened = status("VmHWM").saturating_sub(before);
    fs::write("/proc/self/clear_refs", "5").unwrap();
    std::thread::sleep(asleep);
    let mut samples = 0;
    loop {
        match next {
            Next::Batch(batch) => samples += batch.samples().len(),
            Next::End => break,
            Next::Waiting => panic!("a batch within {PATIENCE:?}: it is locked up"),
        }
        next = loader.next(PATIENCE)?;
    }
    let grown = status("VmHWM").saturating_sub(before);
    drop(next);
    loader.close();
    let report = loader.report();
    let held = &report.memory;
    println!(
        "{samples} samples; grown by {} MiB to the first, then {} MiB; most: {} MiB compressed, {} MiB \
         of batches",
        opened / MIB,
        grown / MIB,
        held.peak_compressed_bytes / MIB,
        held.peak_arena_bytes / MIB
    );
    // The earliest batch may have its quarter twice.
    assert!(held.peak_compressed_bytes <= memory / 2, "{}", held.peak_compressed_bytes);
    assert!(held.peak_arena_bytes <= memory - memory / 4, "{}", held.peak_arena_bytes);
    assert_eq!((held.compressed_bytes, held.arena_bytes, held.leased_bytes), (0, 0, 0));
    assert_eq!(report.workers, 0);
    Ok(Ran { samples, report, grown })
}
