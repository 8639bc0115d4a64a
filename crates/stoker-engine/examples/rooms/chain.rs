//! All rooms together: what an image costs a whole loader, of files on this machine.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stoker_engine::loader::{Loader, Next};
use stoker_engine::recipe::Pixels;
use stoker_engine::sample::Rank;

use crate::clock;
use crate::works::{BATCH, recipe};

/// Batches that are made before the clock is read: by then all memory is mapped.
const WARM: usize = 12;
/// Batches of one reading of the clock.
const BATCHES: usize = 8;
const ROUNDS: usize = 7;

/// Nanoseconds of processor time for an image, by the type of its pixels: medians, of all threads.
pub(crate) fn all(data: &Path, model: &Path) -> Value {
    let open = |pixels| {
        let recipe = recipe(data, model, pixels);
        Loader::open(recipe, Rank { index: 0, of: 1 }).unwrap()
    };
    let mut found = serde_json::Map::new();
    for (name, pixels) in [("u8", Pixels::U8), ("bf16", Pixels::Bf16), ("f32", Pixels::F32)] {
        let loader = open(pixels);
        take(&loader, WARM);
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let begin = clock::of_process();
                take(&loader, BATCHES);
                (clock::of_process() - begin) as f64 / (BATCHES * BATCH) as f64
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        found.insert(name.to_owned(), json!(rounds[ROUNDS / 2]));
    }
    Value::Object(found)
}

fn take(loader: &Loader, batches: usize) {
    let mut taken = 0;
    while taken < batches {
        match loader.next(Duration::from_mins(1)).unwrap() {
            Next::Batch(_) => taken += 1,
            Next::Waiting => {}
            Next::End => panic!("the run is endless"),
        }
    }
}
