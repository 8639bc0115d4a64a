//! `stoker run`: a trainer that does nothing with its batches but count them. What it shows is how
//! fast the engine is here, and what limits it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;
use stoker_engine::loader::{Loader, Next, TraceError};
use stoker_engine::metrics::Report;
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;

use crate::args::RunArguments;
use crate::outcome::{self, Failure, Outcome};
use crate::{bar, interrupt, recipe};

/// How long to wait for a batch before looking for Ctrl-C again.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often the numbers beside the bar change.
const REFRESH: Duration = Duration::from_millis(250);

/// How many bad samples are shown one by one.
const SHOWN: usize = 10;

pub(crate) fn run(arguments: &RunArguments, out: &mut dyn Write) -> Outcome {
    if arguments.rank >= arguments.world_size {
        let (rank, of) = (arguments.rank, arguments.world_size);
        let message = format!("--rank {rank} is not below --world-size {of}; ranks count from 0");
        return Err(Failure::Other { code: outcome::USAGE, message });
    }
    let recipe = finite(recipe(&arguments.recipe)?, arguments.batches);
    let rank = Rank { index: arguments.rank, of: arguments.world_size };
    let bar = bar::of_bytes();
    let opened = Loader::open_with_progress(recipe.clone(), rank, &mut bar::follow(&bar));
    bar.finish_and_clear();
    let loader = opened?;
    // Files are made before the run, which may be long.
    let page = arguments.html.as_deref().map(Page::open).transpose()?;
    let trace =
        arguments.trace.as_deref().map(|path| loader.trace(path, Some(arguments.trace_steps)));
    let trace = trace.transpose().map_err(untraced)?;
    let drained = drain(&loader, arguments.batches)?;
    if let Some(trace) = trace {
        tell_dropped(trace.stop().map_err(untraced)?.dropped);
    }
    let report = loader.report();
    if let Some(page) = page {
        page.write(&report.page(arguments.recipe.recipe.to_str()))?;
    }
    if arguments.json {
        let settings = json!({
            "recipe": recipe.to_value(),
            "rank": arguments.rank,
            "world_size": arguments.world_size,
            "batches": arguments.batches,
        });
        write_json(out, &drained, &report, &settings)?;
    } else {
        write_table(out, &drained, &report)?;
    }
    Ok(if drained.interrupted { outcome::INTERRUPTED } else { outcome::OK })
}

/// An endless recipe is drained for one epoch, unless a number of batches ends it.
fn finite(mut recipe: Recipe, batches: Option<u64>) -> Recipe {
    if batches.is_none() {
        recipe.plan.epochs.get_or_insert(1);
    }
    recipe
}

/// What was drained.
struct Drained {
    batches: u64,
    seconds: f64,
    interrupted: bool,
}

fn drain(loader: &Loader, limit: Option<u64>) -> Result<Drained, Failure> {
    let number = [limit, loader.len()].into_iter().flatten().min();
    let bar = bar::of_batches(number);
    let interrupt = interrupt::is_noted();
    let (begin, mut told, mut batches, mut bad) = (Instant::now(), Instant::now(), 0, 0);
    while limit.is_none_or(|limit| batches < limit) && !interrupt.heard() {
        match loader.next(PATIENCE) {
            Ok(Next::Waiting) => {}
            Ok(Next::End) => break,
            Ok(Next::Batch(batch)) => {
                batches += 1;
                bar.inc(1);
                for sample in batch.bad_samples() {
                    tell_bad(&bar, bad, &sample.to_string());
                    bad += 1;
                }
            }
            Err(error) => {
                bar.finish_and_clear();
                return Err(error.into());
            }
        }
        if told.elapsed() >= REFRESH {
            told = Instant::now();
            bar.set_message(speed(&loader.report(), begin.elapsed().as_secs_f64()));
        }
    }
    bar.finish_and_clear();
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Drained { batches, seconds, interrupted: interrupt.heard() })
}

/// The file of the page.
struct Page<'a>(&'a Path, File);

impl<'a> Page<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        File::create(path).map(|file| Self(path, file)).map_err(|error| unwritten(path, &error))
    }

    fn write(mut self, page: &str) -> Result<(), Failure> {
        self.1.write_all(page.as_bytes()).map_err(|error| unwritten(self.0, &error))
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let message = format!("the page can't be written: {error}: {path}; give another file");
    Failure::Other { code: outcome::FAILED, message }
}

fn untraced(error: TraceError) -> Failure {
    match error {
        TraceError::Machine(error) => Failure::Engine(error),
        other => Failure::Other { code: outcome::FAILED, message: other.to_string() },
    }
}

#[expect(clippy::print_stderr, reason = "stderr is where a command talks")]
fn tell_dropped(dropped: u64) {
    if dropped > 0 {
        eprintln!(
            "stoker: the trace is full: {dropped} later events are not in it; record fewer batches"
        );
    }
}

#[expect(clippy::print_stderr, reason = "stderr is where a command talks")]
fn tell_bad(bar: &ProgressBar, before: usize, sample: &str) {
    bar.suspend(|| match before {
        ..SHOWN => eprintln!("stoker: {sample}"),
        SHOWN => eprintln!("stoker: more bad samples are counted, and not shown"),
        _ => {}
    });
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The numbers beside the bar.
fn speed(report: &Report, seconds: f64) -> String {
    let samples = per_second(report.samples, seconds);
    let tokens = per_second(report.tokens, seconds);
    let wait = report.wait.window_ratio.unwrap_or(1.0) * 100.0;
    format!("{samples:.1} samples/s  {tokens:.0} tokens/s  wait {wait:.0} %")
}

fn write_table(out: &mut dyn Write, drained: &Drained, report: &Report) -> Result<(), Failure> {
    let rate = |count| per_second(count, drained.seconds);
    writeln!(
        out,
        "{} batch{} in {:.2} s: {:.1} samples/s, {:.1} images/s, {:.0} tokens/s",
        drained.batches,
        if drained.batches == 1 { "" } else { "es" },
        drained.seconds,
        rate(report.samples),
        rate(report.images),
        rate(report.tokens),
    )?;
    write!(out, "{report}")?;
    Ok(())
}

fn write_json(
    out: &mut dyn Write,
    drained: &Drained,
    report: &Report,
    settings: &serde_json::Value,
) -> Result<(), Failure> {
    let rate = |count| per_second(count, drained.seconds);
    let whole = json!({
        "batches": drained.batches,
        "seconds": drained.seconds,
        "interrupted": drained.interrupted,
        "samples_per_second": rate(report.samples),
        "images_per_second": rate(report.images),
        "tokens_per_second": rate(report.tokens),
        "report": report,
        "settings": settings,
    });
    writeln!(out, "{whole:#}")?;
    Ok(())
}
