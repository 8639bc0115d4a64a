//! Every door for foreign bytes, over what is known and over mutations of it by seed: the short form
//! of `make fuzz`, which goes on by coverage.
//!
//! What is known is the golden data, a few words below, what fuzzers found once
//! (`testdata/fuzz/TARGET`), and the folder of hostile files where it is at hand.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod mutate;
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};

use stoker_engine::testing::fuzz::{TARGETS, Target};

use mutate::Mutator;

/// Mutations of a target: fewer where each takes milliseconds.
fn mutations(name: &str) -> u64 {
    match name {
        "image" | "table" | "text" => 2000,
        _ => 20_000,
    }
}

/// Longest input that is mutated: what is larger says little more and takes longer.
const LONGEST: usize = 16 << 10;

/// Runs one input; says by which it panicked.
fn run(name: &str, target: Target, seed: &str, bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        let kept = std::env::temp_dir().join(format!("stoker-fuzz-{name}"));
        std::fs::write(&kept, bytes).unwrap();
        panic!("{name} panicked over {seed}, {} bytes, kept as {}", bytes.len(), kept.display());
    }
}

fn check(name: &str) {
    let target = TARGETS.into_iter().find(|(it, _)| *it == name).expect("there is that target").1;
    let seeds = seeds::of(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    for (seed, bytes) in &seeds {
        run(name, target, seed, bytes);
    }
    let small: Vec<&[u8]> =
        seeds.iter().map(|(_, bytes)| &bytes[..]).filter(|it| it.len() <= LONGEST).collect();
    for number in 0..mutations(name) {
        let mut mutator = Mutator::new(number);
        let bytes = mutator.mutated(&small);
        run(name, target, &format!("mutation {number}"), &bytes);
    }
}

macro_rules! targets {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*

        #[test]
        fn every_target_has_a_test() {
            assert_eq!([$($name),*], TARGETS.map(|(name, _)| name));
        }
    };
}

targets! {
    images: "image",
    huffman_codes: "huffman",
    colours: "colours",
    lines_of_json: "line",
    addresses: "address",
    texts: "text",
    archives: "archive",
    shards_of_mds: "mds-shard",
    indexes_of_mds: "mds-index",
    splits_of_energon: "energon",
    tables: "table",
    indexes: "index",
    listings: "listing",
    answers: "answer",
    cursors: "cursor",
    recipes: "recipe",
    special_tokens: "specials",
}
