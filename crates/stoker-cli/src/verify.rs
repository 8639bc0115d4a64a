//! `stoker verify`: every sample that can't be used, before a run meets it. One pass over all rows
//! does to each what a run would do to it.
//!
//! Findings are printed as they come, in the order of the rows, and a summary at the end: also where
//! the pass was cut short, as what was found up to there is no less true.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Value, json};
use stoker_engine::error::Outcome as InRun;
use stoker_engine::loader::{Finding, Interruption, Verified, Verify, too_many_bad};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::SampleId;

use crate::args::VerifyArguments;
use crate::outcome::{self, Failure, Outcome};
use crate::{bar, interrupt, recipe};

/// How long to wait for a finding before looking at the bar and for Ctrl-C again.
const PATIENCE: Duration = Duration::from_millis(100);

/// How a finding is printed.
type Format = fn(&mut dyn Write, &Named<'_>) -> Result<(), Failure>;

pub(crate) fn verify(arguments: &VerifyArguments, out: &mut dyn Write) -> Outcome {
    let recipe = recipe(&arguments.recipe)?;
    let bar = bar::of_bytes();
    let opened = Verify::open(recipe.clone(), &mut bar::follow(&bar));
    bar.finish_and_clear();
    let verify = opened?;
    let format: Format = if arguments.json { write_json } else { write_line };
    let bar = bar::of_samples(verify.rows());
    let passed = pass(&verify, &bar, |summary, finding| {
        let named = Named { finding, dataset: name(&recipe, finding.error.id) };
        summary.count(&named);
        format(out, &named)?;
        Ok(out.flush()?)
    });
    bar.finish_and_clear();
    let passed = passed?;
    let summary = Summary { samples: verify.looked_at(), ..passed.summary };
    let complete = matches!(passed.end, End::Complete);
    if let (End::Failed(interruption), true) = (&passed.end, arguments.json) {
        write_failure(out, &recipe, interruption)?;
    }
    if arguments.json {
        writeln!(out, "{}", summary.to_json(verify.rows(), complete))?;
    } else {
        summary.write(out, &recipe, verify.rows())?;
    }
    match passed.end {
        End::Failed(interruption) => Err(failure(&recipe, *interruption)),
        End::Interrupted => Ok(outcome::INTERRUPTED),
        End::Complete if summary.bad() > 0 => Ok(outcome::DATA),
        End::Complete => Ok(outcome::OK),
    }
}

/// How far it came, and what it met.
struct Passed {
    summary: Summary,
    end: End,
}

enum End {
    Complete,
    /// By Ctrl-C.
    Interrupted,
    Failed(Box<Interruption>),
}

fn pass(
    verify: &Verify,
    bar: &ProgressBar,
    mut found: impl FnMut(&mut Summary, &Finding) -> Result<(), Failure>,
) -> Result<Passed, Failure> {
    let interrupt = interrupt::is_noted();
    let mut summary = Summary::default();
    let end = loop {
        if interrupt.heard() {
            break End::Interrupted;
        }
        match verify.next(PATIENCE) {
            Ok(Verified::Found(finding)) => bar.suspend(|| found(&mut summary, &finding))?,
            Ok(Verified::Waiting) => bar.set_message(format!("{} bad", summary.bad())),
            Ok(Verified::End) => break End::Complete,
            Err(interruption) => break End::Failed(interruption),
        }
        bar.set_position(verify.looked_at());
    };
    Ok(Passed { summary, end })
}

/// A finding with the name of its dataset.
struct Named<'a> {
    finding: &'a Finding,
    dataset: &'a str,
}

fn name(recipe: &Recipe, id: SampleId) -> &str {
    &recipe.datasets[id.dataset as usize].name
}

/// What becomes of a sample in a run, in a word.
fn in_a_run(finding: &Finding) -> &'static str {
    finding.outcome.map_or("ends-run", InRun::as_str)
}

fn write_line(out: &mut dyn Write, named: &Named<'_>) -> Result<(), Failure> {
    let (error, dataset) = (&named.finding.error, named.dataset);
    let (row, origin) = (error.id.row, &error.origin);
    let words = format!("{dataset} {row}  {}  {}: {origin}", in_a_run(named.finding), error.flaw);
    writeln!(out, "{}", one_line(&words))?;
    Ok(())
}

/// What data says must neither break the line nor drive the terminal.
fn one_line(words: &str) -> String {
    let mut line = String::with_capacity(words.len());
    for c in words.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

fn write_json(out: &mut dyn Write, named: &Named<'_>) -> Result<(), Failure> {
    let error = &named.finding.error;
    let whole = json!({
        "kind": "bad-sample",
        "dataset": named.dataset,
        "row": error.id.row,
        "origin": error.origin,
        "room": error.flaw.room,
        "code": error.flaw.code,
        "reason": error.flaw.reason,
        "hint": error.flaw.hint,
        "in_a_run": in_a_run(named.finding),
    });
    writeln!(out, "{whole}")?;
    Ok(())
}

fn write_failure(
    out: &mut dyn Write,
    recipe: &Recipe,
    interruption: &Interruption,
) -> Result<(), Failure> {
    let at = interruption.at.as_ref();
    let whole = json!({
        "kind": "failure",
        "dataset": at.map(|(id, _)| name(recipe, *id)),
        "row": at.map(|(id, _)| id.row),
        "origin": at.map(|(_, origin)| origin),
        "error": interruption.error.to_string(),
    });
    writeln!(out, "{whole}")?;
    Ok(())
}

/// The error, with the place that the pass had come to.
fn failure(recipe: &Recipe, interruption: Interruption) -> Failure {
    let Interruption { at, error } = interruption;
    let Some((id, origin)) = at else { return error.into() };
    let (dataset, row) = (name(recipe, id), id.row);
    let place = format!("the check ended at {dataset} {row} ({origin}), and no sample is to blame");
    Failure::Other { code: outcome::code_of(&error), message: format!("{place}: {error}") }
}

/// Bad samples by dataset, reason, and what becomes of them.
#[derive(Default)]
struct Summary {
    samples: u64,
    counts: BTreeMap<(u32, String, &'static str), (String, u64)>,
}

impl Summary {
    fn count(&mut self, named: &Named<'_>) {
        let Finding { error, .. } = named.finding;
        let reason = format!("{}/{}", error.flaw.room, error.flaw.code);
        let key = (error.id.dataset, reason, in_a_run(named.finding));
        let entry = self.counts.entry(key).or_insert_with(|| (named.dataset.to_owned(), 0));
        entry.1 += 1;
    }

    fn bad(&self) -> u64 {
        self.counts.values().map(|(_, count)| count).sum()
    }

    fn to_json(&self, rows: u64, complete: bool) -> Value {
        let reasons = self.counts.iter().map(|((_, reason, in_a_run), (dataset, count))| {
            json!({"dataset": dataset, "reason": reason, "in_a_run": in_a_run, "samples": count})
        });
        json!({
            "kind": "summary",
            "complete": complete,
            "rows": rows,
            "samples": self.samples,
            "bad": self.bad(),
            "reasons": reasons.collect::<Vec<_>>(),
        })
    }

    fn write(&self, out: &mut dyn Write, recipe: &Recipe, rows: u64) -> Result<(), Failure> {
        let (bad, samples) = (self.bad(), self.samples);
        if bad > 0 {
            self.write_table(out)?;
        }
        let share = bad as f64 / samples.max(1) as f64 * 100.0;
        let rest = if samples < rows { format!(", of {rows} in all") } else { String::new() };
        writeln!(out, "{bad} bad among {samples} samples ({share:.2} %){rest}")?;
        let limit = recipe.engine.bad_sample_limit;
        if too_many_bad(bad, samples, limit) {
            writeln!(out, "! a run would end: engine.bad-sample-limit is {limit}")?;
        }
        Ok(())
    }

    fn write_table(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let head = ["dataset", "reason", "in a run", "samples"].map(str::to_owned);
        let lines = self.counts.iter().map(|((_, reason, in_a_run), (dataset, count))| {
            [dataset.clone(), reason.clone(), (*in_a_run).to_owned(), count.to_string()]
        });
        let table: Vec<_> = std::iter::once(head).chain(lines).collect();
        let widest = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let [a, b, c, d] = [0, 1, 2, 3].map(widest);
        writeln!(out)?;
        for [dataset, reason, in_a_run, count] in &table {
            writeln!(out, "{dataset:<a$}  {reason:<b$}  {in_a_run:<c$}  {count:>d$}")?;
        }
        writeln!(out)?;
        Ok(())
    }
}
