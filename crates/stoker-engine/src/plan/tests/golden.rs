//! The order is the documented one: `testdata/golden/plan/model.py` was written from
//! `docs/rooms/plan.md` alone, and its orders are these.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::*;
use crate::recipe::{Decimal, Stage};

/// A recipe and what the model made of it.
struct Case {
    name: String,
    plan: Plan,
    golden: Value,
}

fn entries(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/plan").join(file);
    let Value::Array(entries) = serde_json::from_slice(&fs::read(path).unwrap()).unwrap() else {
        panic!("the golden orders are a list")
    };
    entries
}

fn cases() -> Vec<Case> {
    entries("orders.json").into_iter().map(case).collect()
}

fn case(golden: Value) -> Case {
    let plan = plan_of(&golden, 4);
    Case { name: golden["name"].to_string(), plan, golden }
}

fn plan_of(golden: &Value, batch_size: u32) -> Plan {
    let list = |value: &Value| value.as_array().unwrap().clone();
    let decimal = |value: &Value| Decimal::new(value.as_str().unwrap().parse().unwrap()).unwrap();
    let stage = |stage: &Value| Stage {
        from: stage["from"].as_u64().unwrap(),
        weights: list(&stage["weights"]).iter().map(decimal).collect(),
    };
    let config = recipe::Plan {
        seed: golden["seed"].as_u64().unwrap(),
        shuffle: match golden["shuffle"].as_str().unwrap() {
            "full" => Shuffle::Full,
            "block" => Shuffle::Block,
            _ => Shuffle::None,
        },
        window: golden["window"].as_u64().map(|window| window as u32),
        temperature: golden["temperature"].as_f64().and_then(Decimal::new),
        stages: list(&golden["stages"]).iter().map(stage).collect(),
        epochs: golden["epochs"].as_u64(),
        remainder: match golden["remainder"].as_str() {
            Some("pad") => Remainder::Pad,
            Some("drop") => Remainder::Drop,
            _ => Remainder::Fill,
        },
        ..recipe::Plan::default()
    };
    let source = |dataset: &Value| {
        let (mut shards, mut rows) = (Vec::new(), 0);
        for size in list(&dataset["shards"]) {
            shards.push(rows);
            rows += size.as_u64().unwrap();
        }
        let share = match (&dataset["weight"], &dataset["epochs"]) {
            (Value::Null, Value::Null) => Share::Rows,
            (weight, Value::Null) => Share::Weight(decimal(weight)),
            (_, epochs) => Share::Epochs(decimal(epochs)),
        };
        Source { rows, shards, share }
    };
    let sources: Vec<Source> = list(&golden["datasets"]).iter().map(source).collect();
    Plan::new(&config, batch_size, &sources, Identity::default()).unwrap()
}

fn pairs(samples: impl IntoIterator<Item = SampleId>) -> Vec<(u64, u64)> {
    samples.into_iter().map(|id| (u64::from(id.dataset), id.row)).collect()
}

/// SHA-256 over samples: dataset as u32, row as u64, little-endian.
fn order_hash(samples: impl IntoIterator<Item = SampleId>) -> String {
    let mut digest = Sha256::new();
    for SampleId { dataset, row } in samples {
        digest.update(dataset.to_le_bytes());
        digest.update(row.to_le_bytes());
    }
    digest.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

#[test]
fn the_order_is_the_documented_one() {
    for Case { name, plan, golden } in cases() {
        let first: Vec<(u64, u64)> = serde_json::from_value(golden["first"].clone()).unwrap();
        assert_eq!(pairs((0..12).map(|p| plan.sample_at(Position(p)))), first, "{name}");
        let spare = |p: u64| plan.spare(Position(p), 1 + p as u32 % 3);
        let rows: Vec<u64> = (0..12).map(|p| spare(p).row).collect();
        assert_eq!(Value::from(rows), golden["spares"], "{name}");
        let count = golden["count"].as_u64().unwrap();
        let hash = order_hash((0..count).map(|p| plan.sample_at(Position(p))));
        assert_eq!(hash, golden["sha256"], "{name}");
    }
}

#[test]
fn any_number_of_ranks_has_the_documented_order_between_them() {
    for Case { name, plan, golden } in cases() {
        let batches = golden["count"].as_u64().unwrap() / 4;
        for ranks in [1, 2, 4, 8] {
            let of_rank = |rank: u64| {
                let batches = (rank..batches).step_by(ranks as usize);
                batches.map(|sequence| {
                    plan.positions(plan.batch(sequence)).unwrap().collect::<Vec<_>>()
                })
            };
            // Step by step, the batches of all ranks; a rank knows only its own.
            let mut by_rank: Vec<_> = (0..ranks).map(of_rank).collect();
            let mut samples = Vec::new();
            for _ in 0..batches / ranks {
                for rank in &mut by_rank {
                    let batch = rank.next().expect("each rank has a batch in each step");
                    samples.extend(batch.into_iter().map(|position| plan.sample_at(position)));
                }
            }
            assert_eq!(order_hash(samples), golden["sha256"], "{name} on {ranks} ranks");
        }
    }
}

/// Dataset and row of each place; nothing on padding.
type Batch = Vec<Option<(u32, u64)>>;

#[test]
fn runs_end_as_documented_on_any_number_of_ranks() {
    for golden in entries("ends.json") {
        let plan = plan_of(&golden, golden["batch_size"].as_u64().unwrap() as u32);
        let (start, of) = (golden["start"].as_u64().unwrap(), golden["ranks"].as_u64().unwrap());
        let by_rank: Vec<Vec<Batch>> = serde_json::from_value(golden["by_rank"].clone()).unwrap();
        for (index, batches) in (0..).zip(by_rank) {
            let rank = Rank { index, of: of as u32 };
            let steps = plan.batches_per_rank(start, rank).unwrap();
            assert_eq!(steps, batches.len() as u64, "{golden}");
            for (step, batch) in (0..).zip(batches) {
                let positions = plan.positions(plan.batch(start + step * of + u64::from(index)));
                let positions = positions.unwrap();
                let sample = |position| {
                    let SampleId { dataset, row } = plan.sample_at(position);
                    (!plan.is_padding(position)).then_some((dataset, row))
                };
                assert_eq!(positions.map(sample).collect::<Vec<_>>(), batch, "{golden}");
            }
        }
    }
}
