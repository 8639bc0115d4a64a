//! What order costs at scale: a billion samples in 10,000 shards of 1,000 datasets that exist on paper
//! only, then 1,000 small ones on disk. Times of draws are those of the processor.
//!
//! cargo run --release -p stoker-engine --example plan_scale
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that can't go on stops")]

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use serde_json::json;
use stoker_engine::loader;
use stoker_engine::plan::{Identity, Plan, Source};
use stoker_engine::recipe::{self, Decimal, Recipe, Share, Shuffle};
use stoker_engine::sample::Position;

const DATASETS: u64 = 1_000;
const SHARDS: u64 = 10;
const ROWS: u64 = 1_000_000_000;

/// Draws that are timed.
const DRAWS: u64 = 1_000_000;

fn main() {
    println!("{ROWS} samples, {} shards, {DATASETS} datasets", DATASETS * SHARDS);
    println!("mixture   shuffle     open ms    bytes/sample    ns in order       ns apart");
    for (name, share) in
        [("equal", weight as fn(u64) -> Share), ("weights", uneven), ("rows", |_| Share::Rows)]
    {
        for shuffle in [Shuffle::None, Shuffle::Full, Shuffle::Block] {
            on_paper(name, share, shuffle);
        }
    }
    on_disk();
}

fn weight(_: u64) -> Share {
    Share::Weight(Decimal::ONE)
}

fn uneven(number: u64) -> Share {
    Share::Weight(Decimal::new(0.000_001 * (number * 7919 % 100_003 + 1) as f64).unwrap())
}

fn on_paper(name: &str, share: fn(u64) -> Share, shuffle: Shuffle) {
    // Sizes from 1/10 to 19/10 of the mean.
    let mean = ROWS / DATASETS;
    let source = |number: u64| {
        let rows = mean / 10 + (mean * 18 / 10) * number / (DATASETS - 1);
        let shards = (0..SHARDS).map(|shard| rows * shard / SHARDS).collect();
        Source { rows, shards, share: share(number) }
    };
    let sources: Vec<Source> = (0..DATASETS).map(source).collect();
    let config = recipe::Plan { shuffle, ..recipe::Plan::default() };
    let (before, begin) = (resident(), Instant::now());
    let plan = Plan::new(&config, 8, &sources, Identity::default()).unwrap();
    let opened = begin.elapsed().as_secs_f64() * 1e3;
    let in_order = nanoseconds(&plan, |draw| 1_000_000 + draw);
    // Anywhere within a million positions: as far as lanes are apart.
    let scattered = |draw: u64| draw.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
    let apart = nanoseconds(&plan, |draw| (1 << 40) + scattered(draw));
    let bytes = resident().saturating_sub(before) as f64 / ROWS as f64;
    let shuffle = shuffle.as_str();
    println!("{name:9} {shuffle:7} {opened:11.1} {bytes:15.4} {in_order:14.0} {apart:14.0}");
}

fn nanoseconds(plan: &Plan, position: impl Fn(u64) -> u64) -> f64 {
    let begin = busy();
    for draw in 0..DRAWS {
        black_box(plan.sample_at(Position(position(draw))));
    }
    (busy() - begin) as f64 / DRAWS as f64
}

/// Nanoseconds that this thread has run: others on the machine do not count.
fn busy() -> u64 {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let line = json!({"messages": [{"role": "assistant", "content": "yes"}]}).to_string();
    let dataset = |number: u64| {
        let path = folder.path().join(format!("{number}.jsonl"));
        fs::write(&path, format!("{line}\n").repeat(100)).unwrap();
        json!({"name": format!("d{number}"), "source": path})
    };
    let datasets: Vec<_> = (0..DATASETS).map(dataset).collect();
    let recipe = Recipe::from_value(json!({"datasets": datasets})).unwrap();
    for what in ["indexed", "opened"] {
        let begin = Instant::now();
        let found = loader::index(&recipe, &mut |_, _| {}).unwrap();
        let rows: u64 = found.iter().map(|one| one.rows).sum();
        let seconds = begin.elapsed().as_secs_f64();
        println!("{} datasets of {rows} rows on disk {what} in {seconds:.2} s", found.len());
    }
}
