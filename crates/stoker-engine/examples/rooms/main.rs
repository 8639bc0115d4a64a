//! What each room's work costs, on data that is always the same: processor time and allocations; and,
//! under an instrument that counts, instructions. `bench/profile` drives it.
//!
//! cargo run --release -p stoker-engine --example rooms -- make DATA
//! cargo run --release -p stoker-engine --example rooms -- time DATA MODEL
//! cargo run --release -p stoker-engine --example rooms -- once DATA MODEL
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that can't go on stops")]

mod chain;
mod clock;
mod counting;
mod data;
mod works;

use std::hint::black_box;
use std::path::Path;

use serde_json::{Value, json};

use counting::{Asked, Counting};
use works::Work;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often each work is timed, in turns with the others.
const ROUNDS: usize = 15;

/// How long a work is run at a time: a thousand times what reading the clock takes.
const ROUND_NANOSECONDS: u64 = 20_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["make", data] => data::make(Path::new(data)),
        ["time", data, model] => {
            let (data, model) = (Path::new(data), Path::new(model));
            let works = timed(&mut works::all(data, model));
            println!("{:#}", json!({"works": works, "chain": chain::all(data, model)}));
        }
        ["once", data, model] => {
            let mut works = works::all(Path::new(data), Path::new(model));
            println!("{:#}", json!({"works": once(&mut works)}));
        }
        _ => println!("rooms make DATA | time DATA MODEL | once DATA MODEL"),
    }
}

/// Runs a work. An instrument can be told to count from its entry to its return.
#[inline(never)]
fn measured_work(run: &mut dyn FnMut()) {
    run();
    // Without anything to do behind it the call would be a jump, of which the return is not seen.
    black_box(());
}

/// Each work in turn, once to warm it up and once to be looked at.
fn once(works: &mut [Work]) -> Vec<Value> {
    let each = works.iter_mut().map(|work| {
        (work.run)();
        let before = Asked::so_far();
        measured_work(&mut work.run);
        let Asked { allocations, bytes } = Asked::since(before);
        let Work { name, items, .. } = work;
        let per_item = |count: u64| count as f64 / *items as f64;
        json!({
            "name": name,
            "items": items,
            "allocations": per_item(allocations),
            "allocated_bytes": per_item(bytes),
        })
    });
    each.collect()
}

/// The median time of an item of each work, in nanoseconds of this thread.
fn timed(works: &mut [Work]) -> Vec<Value> {
    let mut found = once(works);
    let repetitions: Vec<u64> = works
        .iter_mut()
        .map(|work| (ROUND_NANOSECONDS / nanoseconds(work, 1).max(1)).max(1))
        .collect();
    let mut rounds = vec![Vec::new(); works.len()];
    for _ in 0..ROUNDS {
        for ((work, &repetitions), times) in works.iter_mut().zip(&repetitions).zip(&mut rounds) {
            let all = nanoseconds(work, repetitions);
            times.push(all as f64 / (repetitions * work.items) as f64);
        }
    }
    for (found, mut times) in found.iter_mut().zip(rounds) {
        times.sort_by(f64::total_cmp);
        found["nanoseconds"] = json!(times[ROUNDS / 2]);
        found["least_nanoseconds"] = json!(times[0]);
    }
    found
}

fn nanoseconds(work: &mut Work, repetitions: u64) -> u64 {
    let begin = clock::of_thread();
    for _ in 0..repetitions {
        measured_work(&mut work.run);
    }
    clock::of_thread() - begin
}
