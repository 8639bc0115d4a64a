//! The data and the model: indexes, tokenizer and template, and a few samples all the way through.

use std::time::Duration;

use serde_json::json;
use stoker_engine::error::{Bytes, Error};
use stoker_engine::loader::{self, Data, Examination, Peek};
use stoker_engine::recipe::{Pixels, Recipe};

use super::finding::Finding;
use crate::bar;
use crate::outcome::{self, USAGE};

/// How long indexes may take to be built. Longer, and one had better know before the run.
const PATIENCE: Duration = Duration::from_mins(1);

/// Samples that are gone through.
const SAMPLES: u64 = 8;

/// Notes of data that are shown.
const NOTES: usize = 3;

/// Batches that should fit into memory: those that are filled, the trainer's, and the next one.
const COMFORTABLE: u64 = 6;

/// Opens the datasets.
pub(super) fn index(examination: &Examination) -> (Finding, Option<Data>) {
    const CHECK: &str = "index";
    let bar = bar::of_bytes();
    let opened = examination.data(PATIENCE, &mut bar::follow(&bar));
    bar.finish_and_clear();
    let data = match opened {
        Ok(data) => data,
        Err(Error::Stopped) => {
            let what = format!("it is not there, and takes longer than {PATIENCE:?} to build");
            let hint =
                "run `stoker index` before the run; samples and throughput were not looked at";
            return (Finding::warning(CHECK, what, hint), None);
        }
        Err(error) => return (Finding::error(CHECK, &error), None),
    };
    let (rows, shards, notes) = (data.rows(), data.shards(), data.notes());
    let what = format!("{rows} rows in {shards} {}", if shards == 1 { "file" } else { "files" });
    let finding = if rows == 0 {
        Finding::failure(CHECK, outcome::DATA, what, "check dataset.source")
    } else if notes.is_empty() {
        Finding::ok(CHECK, what)
    } else {
        let shown = notes.iter().take(NOTES).cloned().collect::<Vec<_>>().join("; ");
        Finding::warning(CHECK, format!("{what}: {shown}"), "`stoker index` shows all of it")
    };
    (finding.with(json!({"rows": rows, "shards": shards, "notes": notes})), Some(data))
}

/// Opens the tokenizer, the chat template and the vision settings, each problem by itself.
pub(super) fn model(examination: &Examination) -> Vec<Finding> {
    const CHECK: &str = "model";
    match examination.model() {
        Ok(()) => vec![Finding::ok(CHECK, "tokenizer, chat template and image settings are sound")],
        Err(Error::Recipe(problems)) => problems
            .iter()
            .map(|problem| {
                let check = match problem.path.split('.').next() {
                    Some("vision") => "images",
                    _ if problem.path == "text.tokenizer" => "tokenizer",
                    _ if problem.path == "text.chat-template" => "template",
                    _ => CHECK,
                };
                let words = problem.to_string();
                Finding { words, ..Finding::failure(check, USAGE, "", "") }
            })
            .collect(),
        Err(error) => vec![Finding::error(CHECK, &error)],
    }
}

/// Has a few samples go all the way through, and says what became of them and how large a batch is.
pub(super) fn samples(examination: &Examination, recipe: &Recipe) -> Vec<Finding> {
    match examination.samples(SAMPLES) {
        Ok(peeks) => judged(&peeks, recipe),
        Err(error) => vec![Finding::error("samples", &error)],
    }
}

fn judged(peeks: &[Result<Peek, Error>], recipe: &Recipe) -> Vec<Finding> {
    const CHECK: &str = "samples";
    let sound: Vec<&Peek> = peeks.iter().filter_map(|peek| peek.as_ref().ok()).collect();
    let mut errors = peeks.iter().filter_map(|peek| peek.as_ref().err());
    let (bad, first) = (errors.clone().count(), errors.next());
    if let Some(error) = errors.chain(first).find(|error| !matches!(error, Error::Sample(_))) {
        return vec![Finding::error(CHECK, error)];
    }
    let (count, limit) = (peeks.len(), recipe.engine.bad_sample_limit);
    let finding = match first {
        Some(error) if sound.is_empty() => Finding::failure(
            CHECK,
            outcome::DATA,
            format!("none of {count} can be used; the first so: {error}"),
            "mend the data, or the recipe's idea of it",
        ),
        Some(error) => Finding::warning(
            CHECK,
            format!("{bad} of {count} can't be used; the first so: {error}"),
            &format!(
                "`stoker verify` finds all of them; a run ends at a share of {limit} (engine.bad-sample-limit)"
            ),
        ),
        None => {
            let tokens: usize = sound.iter().map(|peek| peek.tokens.len()).sum();
            let learned = sound.iter().flat_map(|peek| &peek.tokens).filter(|(.., it)| *it).count();
            let images: usize = sound.iter().map(|peek| peek.images.len()).sum();
            Finding::ok(
                CHECK,
                format!(
                    "{count} went all the way through: {images} images, {} tokens a sample, {:.0} % of \
                     them learned",
                    tokens / count.max(1),
                    learned as f64 / tokens.max(1) as f64 * 100.0
                ),
            )
        }
    };
    let finding = finding.with(json!({"samples": count, "bad": bad}));
    std::iter::once(finding).chain(batch(&sound, recipe)).collect()
}

/// Whether batches of samples like these fit into memory.
fn batch(sound: &[&Peek], recipe: &Recipe) -> Option<Finding> {
    const CHECK: &str = "batch";
    let size = u64::from(recipe.pack.batch_size.filter(|_| !sound.is_empty())?);
    let pixels: u64 = sound
        .iter()
        .flat_map(|peek| &peek.images)
        .map(|(_, it)| (it.width * it.height) as u64)
        .sum();
    // Each pixel has three colours; but for u8 twice, as an image is two frames to the model.
    let of_pixel = match recipe.vision.pixels {
        Pixels::F32 => 24,
        Pixels::Bf16 => 12,
        Pixels::U8 => 3,
    };
    let batch = pixels * of_pixel * size / sound.len() as u64;
    let (_, memory) = loader::ahead(recipe, 1);
    let fitting = memory / 4 * 3 / batch.max(1);
    let what = format!(
        "about {} for {size} samples, and engine.memory of {} has room for {}",
        Bytes(batch),
        Bytes(memory),
        if fitting > 1000 { "more than 1000".to_owned() } else { fitting.to_string() }
    );
    let enough = (batch * COMFORTABLE * 4 / 3).div_ceil(1 << 20) + 1;
    let hint = format!(
        "set engine.memory to {enough}MiB, or make batches smaller (vision.pixels, vision.max-pixels)"
    );
    let finding = match fitting {
        ..2 => {
            let what =
                format!("{what}: a run ends, as the trainer holds one while it asks for the next");
            Finding::failure(CHECK, USAGE, what, &hint)
        }
        2..COMFORTABLE => Finding::warning(CHECK, format!("{what}: too few to work ahead"), &hint),
        _ => Finding::ok(CHECK, what),
    };
    Some(finding.with(json!({"bytes": batch, "memory": memory, "fitting": fitting})))
}
