//! `stoker doctor`: what a run depends on, looked at one thing after the other, and what will go wrong
//! said in words.
//!
//! No check stops those after it, but for what can't be without it: without a recipe that can be read
//! there is no store to ask, and without an index there are no samples. What is asked of the store is
//! bounded in time and bytes. No secret is in any of it.

mod data;
mod finding;
mod machine;
mod store;

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;
use stoker_engine::fetch::Environment;
use stoker_engine::loader::Examination;
use stoker_engine::recipe::Recipe;

use crate::args::DoctorArguments;
use crate::outcome::{self, Failure, Outcome};
use crate::recipe;
use finding::{Finding, Level};
use machine::Facts;

/// How often and for how long what does not answer is asked, in place of what the recipe says of a run
/// that is to outlast a store's bad hours.
const ATTEMPTS: u32 = 2;
const DEADLINE: Duration = Duration::from_secs(20);

/// Where findings go.
type Tell<'a> = &'a mut dyn FnMut(Finding) -> io::Result<()>;

pub(crate) fn doctor(arguments: &DoctorArguments, out: &mut dyn Write, colours: bool) -> Outcome {
    let mut findings = Vec::new();
    let mut tell = |finding: Finding| -> io::Result<()> {
        if !arguments.json {
            finding.write(out, colours)?;
            out.flush()?;
        }
        findings.push(finding);
        Ok(())
    };
    let facts = Facts::here();
    match recipe(&arguments.recipe) {
        Ok(recipe) => examine(recipe, &facts, Environment::of_process(), store::PROBE, &mut tell)?,
        Err(Failure::Engine(error)) => {
            tell(Finding::error("recipe", &error))?;
            without_recipe(&facts, &mut tell)?;
        }
        Err(failure) => return Err(failure),
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let [ok, warnings, failures] = [Level::Ok, Level::Warning, Level::Failure].map(count);
    if arguments.json {
        let checks: Vec<_> = findings.iter().map(Finding::to_json).collect();
        let whole = json!({"checks": checks, "ok": ok, "warnings": warnings, "failures": failures});
        writeln!(out, "{whole:#}")?;
    } else {
        let counted = |count, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let (warnings, failures) = (counted(warnings, "warning"), counted(failures, "failure"));
        writeln!(out, "\n{ok} ok, {warnings}, {failures}")?;
    }
    let failed = findings.iter().find(|finding| finding.level == Level::Failure);
    Ok(failed.map_or(outcome::OK, |finding| finding.code))
}

/// What a machine is like can be said without a recipe too.
fn without_recipe(facts: &Facts, tell: Tell<'_>) -> io::Result<()> {
    let usual = Recipe::from_toml("[dataset]\nsource = '/'");
    let usual = usual.map_err(|error| io::Error::other(error.to_string()))?;
    machine::checks(facts, &usual).into_iter().try_for_each(tell)
}

/// All checks of a recipe, on a machine and with an environment that are told; the store is read from for
/// so long, by each number of requests.
fn examine(
    mut recipe: Recipe,
    facts: &Facts,
    environment: Environment,
    probe: Duration,
    tell: Tell<'_>,
) -> io::Result<()> {
    let datasets = recipe.datasets.len();
    let noun = if datasets == 1 { "dataset" } else { "datasets" };
    tell(Finding::ok("recipe", format!("it can be read, and names {datasets} {noun}")))?;
    machine::checks(facts, &recipe).into_iter().try_for_each(&mut *tell)?;
    recipe.fetch.attempts = recipe.fetch.attempts.min(ATTEMPTS);
    recipe.fetch.deadline = recipe.fetch.deadline.min(DEADLINE);
    // What is looked at is the store.
    recipe.fetch.cache = None;
    let examination = match Examination::new(recipe.clone(), environment) {
        Ok(examination) => examination,
        Err(error) => return tell(Finding::error("store", &error)),
    };
    let met = store::meet(&examination, facts.now, tell)?;
    let model = data::model(&examination);
    let is_sound = model.iter().all(|finding| finding.level != Level::Failure);
    model.into_iter().try_for_each(&mut *tell)?;
    let (finding, data) = data::index(&examination);
    tell(finding)?;
    let Some(data) = data else { return Ok(()) };
    store::regions(&examination, &met).into_iter().try_for_each(&mut *tell)?;
    store::throughput(&examination, &recipe, &data, probe).into_iter().try_for_each(&mut *tell)?;
    if is_sound {
        data::samples(&examination, &recipe).into_iter().try_for_each(tell)
    } else {
        let hint = "mend the model first";
        tell(Finding::warning("samples", "they can't be looked at without a model", hint))
    }
}

#[cfg(test)]
mod tests;
