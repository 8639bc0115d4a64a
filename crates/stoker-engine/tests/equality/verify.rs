//! A check of all rows finds what a run over all rows finds, and does not end before its end.

use std::collections::BTreeSet;
use std::fs;

use stoker_engine::error::{Error, Outcome};
use stoker_engine::loader::{Finding, Interruption, Verified, Verify};
use stoker_engine::sample::SampleId;
use stoker_engine::testing::{encode_jpeg, photo};

use super::*;

/// A bad sample: which, what is said of it, and what became of it.
type Bad = (u32, u64, String, Outcome);

/// All that a run over one epoch replaces or neutralises.
fn of_a_run(recipe: &Recipe) -> BTreeSet<Bad> {
    let mut recipe = recipe.clone();
    recipe.plan.epochs = Some(1);
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let mut all = BTreeSet::new();
    while let Next::Batch(batch) = loader.next(PATIENCE).unwrap() {
        for bad in batch.bad_samples() {
            let stays = batch.samples().contains(&bad.id);
            let outcome = if stays { Outcome::Neutralised } else { Outcome::Replaced };
            all.insert((bad.id.dataset, bad.id.row, bad.to_string(), outcome));
        }
    }
    all
}

fn findings(recipe: &Recipe) -> (Vec<Finding>, Option<Interruption>) {
    let verify = Verify::open(recipe.clone(), &mut |_, _| {}).unwrap();
    let mut found = Vec::new();
    loop {
        match verify.next(PATIENCE) {
            Ok(Verified::Found(finding)) => found.push(*finding),
            Ok(Verified::Waiting) => panic!("nothing within {PATIENCE:?}"),
            Ok(Verified::End) => {
                assert_eq!(verify.looked_at(), verify.rows());
                return (found, None);
            }
            Err(interruption) => return (found, Some(*interruption)),
        }
    }
}

/// All findings of a check that comes to its end, in the order of the rows.
fn of_a_check(recipe: &Recipe) -> Vec<Bad> {
    let (found, interruption) = findings(recipe);
    assert!(interruption.is_none(), "{interruption:?}");
    let bad = |Finding { error, outcome }: Finding| {
        let SampleId { dataset, row } = error.id;
        (dataset, row, error.to_string(), outcome.expect("the run goes on"))
    };
    let found: Vec<Bad> = found.into_iter().map(bad).collect();
    assert!(found.is_sorted(), "{found:#?}");
    found
}

#[test]
fn a_check_finds_exactly_what_a_run_replaces_or_neutralises() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let found = of_a_check(&made(&source, json!({"engine": {"workers": 3}})));
    let rows: Vec<u64> = found.iter().map(|bad| bad.1).collect();
    assert_eq!(rows, common::BAD.map(|(row, _)| row as u64));
    for ((_, code), bad) in common::BAD.iter().zip(&found) {
        assert!(bad.2.contains(code), "{bad:?}");
    }
    let run = of_a_run(&made(&source, json!({"pack": {"batch-size": 4}})));
    assert_eq!(BTreeSet::from_iter(found), run);
}

#[test]
fn a_check_goes_through_all_datasets_also_those_that_are_not_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let dataset =
        |name: &str, weight: u32| json!({"name": name, "source": source, "weight": weight});
    let mut value = made(&source, json!({})).to_value();
    value.as_object_mut().unwrap().remove("dataset");
    value["datasets"] = json!([dataset("one", 1), dataset("two", 0)]);
    let found = of_a_check(&Recipe::from_value(value).unwrap());
    let half = common::BAD.len();
    assert_eq!(found.len(), 2 * half);
    assert!(
        found[..half].iter().all(|bad| bad.0 == 0) && found[half..].iter().all(|bad| bad.0 == 1)
    );
}

/// A stream of numbers that looks random, and is always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) as usize % end
    }

    /// The same bytes with some damage: cut short, overwritten in places, or with a hole.
    fn damaged(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self.below(4) {
            0 => bytes.truncate(self.below(bytes.len())),
            1 => {
                for _ in 0..=self.below(6) {
                    let at = self.below(bytes.len());
                    bytes[at] = self.below(256) as u8;
                }
            }
            2 => {
                let (from, length) = (self.below(bytes.len()), self.below(400));
                let to = (from + length).min(bytes.len());
                bytes[from..to].fill(0);
            }
            _ => {
                let from = self.below(bytes.len());
                bytes.drain(from..(from + self.below(40)).min(bytes.len()));
            }
        }
        bytes
    }
}

/// A data set of damaged images in four formats and of damaged lines, some of them still good.
fn hostile(folder: &Path, seed: u64) -> std::path::PathBuf {
    let mut numbers = Numbers(seed);
    let golden = common::root().join("testdata/golden/images");
    let of = |name: &str| fs::read(golden.join(name)).unwrap();
    let originals = [
        of("a_444.jpg"),
        of("c_prog.jpg"),
        of("p_1bit.png"),
        encode_jpeg(&photo(seed, 90, 70), 90, 70, 85),
    ];
    let mut lines = Vec::new();
    for row in 0..160 {
        let name = format!("{row}.bin");
        let original = originals[numbers.below(originals.len())].clone();
        let bytes = if row % 8 == 0 { original } else { numbers.damaged(original) };
        fs::write(folder.join(&name), bytes).unwrap();
        let chat = json!({"messages": [
            {"role": "user", "content": [{"type": "image", "image": name}, {"type": "text", "text": "What?"}]},
            {"role": "assistant", "content": "That."},
        ]});
        let mut line = chat.to_string().into_bytes();
        if row % 5 == 4 {
            line = numbers.damaged(line);
            line.retain(|byte| *byte != b'\n' && *byte != b'\r');
        }
        // An empty line is no row.
        if line.iter().all(u8::is_ascii_whitespace) {
            line = b"{}".to_vec();
        }
        lines.push(line);
    }
    lines.push(vec![b'['; 100_000]);
    lines.push(vec![0; 300]);
    lines.push(b"{\"messages\": 1e999}".to_vec());
    let source = folder.join("hostile.jsonl");
    fs::write(&source, lines.join(&b'\n')).unwrap();
    source
}

#[test]
fn of_hostile_files_a_check_finds_what_a_run_finds() {
    for seed in 1..5 {
        let folder = tempfile::tempdir().unwrap();
        let source = hostile(folder.path(), seed);
        let recipe = made(
            &source,
            json!({
                "image": {"max-pixels": 4_000_000}, "pack": {"batch-size": 4},
                "engine": {"bad-sample-limit": 1},
            }),
        );
        let found = BTreeSet::from_iter(of_a_check(&recipe));
        assert!((40..150).contains(&found.len()), "seed {seed}: {} are bad", found.len());
        let neutralised = found.iter().filter(|bad| bad.3 == Outcome::Neutralised).count();
        assert!(neutralised > 3, "seed {seed}: {neutralised} show only when they are decoded");
        assert_eq!(found, of_a_run(&recipe), "seed {seed}");
    }
}

#[test]
fn what_ends_a_run_does_not_end_a_check() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let (found, interruption) =
        findings(&made(&source, json!({"engine": {"on-bad-sample": "stop"}})));
    assert!(interruption.is_none(), "{interruption:?}");
    assert_eq!(found.len(), common::BAD.len());
    assert!(found.iter().all(|finding| finding.outcome.is_none()));

    // Six million pixels are 18 million bytes; half of the memory is for one image.
    let large = encode_jpeg(&vec![90; 2500 * 2400 * 3], 2500, 2400, 30);
    fs::write(folder.path().join("images/000000.jpg"), large).unwrap();
    let small = json!({
        "engine": {"memory": "16MiB", "workers": 1}, "plan": {"epochs": 1, "shuffle": "none"},
        "vision": {"pixels": "u8"}, "pack": {"batch-size": 1},
    });
    let recipe = made(&source, small);
    let (found, interruption) = findings(&recipe);
    assert!(interruption.is_none(), "{interruption:?}");
    let ends: Vec<_> = found.iter().filter(|finding| finding.outcome.is_none()).collect();
    assert!(!ends.is_empty() && ends.len() < found.len(), "{found:#?}");
    assert!(ends.iter().all(|finding| finding.error.flaw.code == "over-memory"), "{ends:#?}");
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let error = loop {
        match loader.next(PATIENCE) {
            Ok(next) => assert!(matches!(next, Next::Batch(_)), "the run ends"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Budget(_)), "{error}");
    assert!(ends[0].error.flaw.reason.contains(&error.to_string()), "{:?}", ends[0]);
}

#[test]
fn a_store_that_fails_ends_a_check_and_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let lines = fs::read_to_string(&source).unwrap();
    let mut lines: Vec<_> = lines.lines().map(str::to_owned).collect();
    lines[20] = lines[11].replace("nowhere.jpg", "s3://bucket/away.jpg");
    fs::write(&source, lines.join("\n")).unwrap();
    // Nobody listens there once the listener is dropped.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fetch = json!({"endpoint": format!("http://{nobody}"), "anonymous": true, "attempts": 1});
    let (found, interruption) = findings(&made(&source, json!({"fetch": fetch})));
    let before: Vec<u64> = found.iter().map(|finding| finding.error.id.row).collect();
    assert_eq!(before, [3, 11, 19], "all rows before it were looked at");
    let Interruption { at, error } = interruption.expect("the store fails");
    let (id, origin) = at.expect("the place is known");
    assert_eq!((id.dataset, id.row), (0, 20));
    assert!(origin.ends_with("train.jsonl:21"), "{origin}");
    assert!(error.to_string().contains("s3://bucket/away.jpg"), "{error}");
}
