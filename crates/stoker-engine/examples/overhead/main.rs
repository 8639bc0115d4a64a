//! What the metrics cost, which are always on, in two ways; `bench/overhead.py` drives it.
//!
//! cargo run --release -p stoker-engine --features metrics-switch --example overhead -- MODEL
//! cargo run --release -p stoker-engine --features metrics-switch --example overhead -- MODEL LEAST-PIXELS MOST-PIXELS BATCHES
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that can't go on stops")]

mod counted;
mod turns;

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};
use stoker_engine::loader::{Loader, Next};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Server};

const BATCH: u64 = 8;
/// Some have no image and some have two: so many batches as make whole epochs are the same work each time.
const SAMPLES: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse().unwrap();
    match arguments.as_slice() {
        [model] => println!("{:#}", counted::bound(model)),
        [model, least, most, batches] => {
            turns::listen(model, number(least)..=number(most), batches.parse().unwrap());
        }
        _ => panic!("MODEL, or MODEL LEAST-PIXELS MOST-PIXELS BATCHES"),
    }
}

/// A loader of images of so many pixels, and its store, which answers at once.
fn loader(model: &str, pixels: RangeInclusive<usize>, engine: &Value) -> (Loader, Server) {
    let server = Server::start(&Config { unsigned: true, ..Config::default() }, Backend::memory());
    let server = server.unwrap();
    for (key, bytes) in ChatDataset::new(3, SAMPLES, pixels).objects() {
        server.put("bucket", &key, bytes).unwrap();
    }
    let recipe = json!({
        "model": model,
        "dataset": {"source": format!("s3://bucket/{CHAT_KEY}")},
        "fetch": {"endpoint": server.endpoint(), "anonymous": true},
        "vision": {"pixels": "u8"},
        "plan": {"shuffle": "none"},
        "pack": {"batch-size": BATCH},
        "engine": engine,
    });
    let recipe = Recipe::from_value(recipe).unwrap();
    (Loader::open(recipe, Rank { index: 0, of: 1 }).unwrap(), server)
}

/// Takes a batch, and drops it.
fn take(loader: &Loader) {
    let Next::Batch(batch) = loader.next(Duration::from_mins(1)).unwrap() else {
        panic!("a batch within a minute")
    };
    drop(batch);
}
