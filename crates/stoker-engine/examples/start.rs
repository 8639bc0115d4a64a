//! How long a loader takes to its first batch: of an indexed dataset on a store that lets every
//! request wait the same, and what of it the opening of each room takes.
//!
//! cargo run --release -p stoker-engine --example start -- MODEL
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that can't go on stops")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use stoker_engine::loader::{self, Loader, Next};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_engine::text::Encoder;
use stoker_engine::vision::Preprocessor;
use stoker_s3::{Backend, Config, Server};

/// What every answer of the store is held back.
const LATENCY: Duration = Duration::from_millis(30);

/// Requests of which each waits for the one before: what the source is now, and a batch's images.
const IN_TURN: u32 = 2;

const BATCH: usize = 8;
const ROUNDS: usize = 11;

fn main() {
    let model = std::env::args().nth(1).expect("the model's folder is the argument");
    let config = Config { unsigned: true, first_byte: Some(LATENCY), ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    for (key, bytes) in ChatDataset::new(3, 256, 40_000..=60_000).objects() {
        server.put("bucket", &key, bytes).unwrap();
    }
    let indexes = tempfile::tempdir().unwrap();
    let recipe = json!({
        "model": model,
        "dataset": {"source": format!("s3://bucket/{CHAT_KEY}"), "index-dir": indexes.path()},
        "fetch": {"endpoint": server.endpoint(), "anonymous": true},
        "pack": {"batch-size": BATCH},
    });
    let recipe = Recipe::from_value(recipe).unwrap();
    loader::index(&recipe, &mut |_, _| {}).unwrap();
    let asked_before = server.stats().requests;
    first_batch(&recipe);
    println!("{} requests to the first batch", server.stats().requests - asked_before);

    let mut rows: [(&str, Vec<f64>); 6] = [
        ("first batch", Vec::new()),
        ("  without the store's wait", Vec::new()),
        ("  of it, opening the loader", Vec::new()),
        ("text room alone", Vec::new()),
        ("vision room alone", Vec::new()),
        ("datasets alone", Vec::new()),
    ];
    for _ in 0..ROUNDS {
        let (open, all) = first_batch(&recipe);
        let folder = Some(Path::new(&model));
        let alone = [
            milliseconds(|| Encoder::open(folder, &recipe.text, None).unwrap()),
            milliseconds(|| Preprocessor::open(folder, &recipe.vision, recipe.compat).unwrap()),
            milliseconds(|| loader::index(&recipe, &mut |_, _| {}).unwrap()),
        ];
        let wait = (LATENCY * IN_TURN).as_secs_f64() * 1e3;
        let times = [all, all - wait, open].into_iter().chain(alone);
        rows.iter_mut().zip(times).for_each(|((_, all), time)| all.push(time));
    }
    for (name, mut times) in rows {
        times.sort_by(f64::total_cmp);
        println!("{name:28} {:7.1} ms (least {:.1})", times[ROUNDS / 2], times[0]);
    }
}

/// Milliseconds until a loader is open, and until it has given its first batch.
fn first_batch(recipe: &Recipe) -> (f64, f64) {
    let begin = Instant::now();
    let passed = || begin.elapsed().as_secs_f64() * 1e3;
    let loader = Loader::open(recipe.clone(), Rank { index: 0, of: 1 }).unwrap();
    let open = passed();
    while !matches!(loader.next(Duration::from_mins(1)).unwrap(), Next::Batch(_)) {}
    (open, passed())
}

fn milliseconds<T>(run: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    black_box(run());
    begin.elapsed().as_secs_f64() * 1e3
}
