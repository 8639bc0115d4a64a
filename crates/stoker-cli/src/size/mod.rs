//! `stoker size`: what a trainer will wait on a machine that is not there yet, and what it needs.
//!
//! What batches cost is measured here, shortly, with the recipe's own data and the real engine
//! ([`measure`]); what follows from it is arithmetic ([`Forecast`]). Nobody has to believe it: `bench.sizing`
//! holds it against runs.

mod measure;
mod show;

use std::io::Write;

use stoker_engine::loader;
use stoker_engine::metrics::{Forecast, Job, Machine};
use stoker_engine::recipe::Recipe;

use crate::args::SizeArguments;
use crate::document;
use crate::outcome::{self, Failure, Outcome};

/// How many times as many GPUs the table goes up to.
const SCALES: [u64; 4] = [1, 2, 4, 8];

pub(crate) fn size(arguments: &SizeArguments, out: &mut dyn Write) -> Outcome {
    let mut document = document(&arguments.recipe)?;
    if let Some(batch) = arguments.batch {
        document.set_value("pack.batch-size", batch.into());
    }
    let recipe = document.recipe()?;
    let here = cores(&recipe);
    let machine = machine(&recipe, arguments, here);
    let ranks = arguments.gpus.min(arguments.gpus_per_node);
    let measurable = measurable(recipe, &machine, ranks, here);
    let Some(measured) = measure::measure(measurable, arguments.measure)? else {
        return Ok(outcome::INTERRUPTED);
    };
    let job = |times| Job { gpus: arguments.gpus * times, step_seconds: arguments.step_time };
    let forecasts = SCALES.map(|times| Forecast::of(&measured.cost, &machine, job(times)));
    let sized = show::Sizing { measured: &measured, machine: &machine, forecasts: &forecasts };
    if arguments.json {
        writeln!(out, "{:#}", sized.to_json())?;
    } else {
        sized.write(out)?;
    }
    Ok(outcome::OK)
}

/// The cores of this machine, whatever the recipe takes of them.
fn cores(recipe: &Recipe) -> usize {
    let mut recipe = recipe.clone();
    (recipe.engine.workers, recipe.engine.local_world_size) = (None, None);
    loader::workers(&recipe)
}

/// A node as the command line says it is, and as the one here where it says nothing.
fn machine(recipe: &Recipe, arguments: &SizeArguments, here: usize) -> Machine {
    let ranks = arguments.gpus_per_node;
    let cores = arguments.cores.map_or(here as f64, f64::from);
    let together = arguments.gpus.min(ranks);
    let mut recipe = recipe.clone();
    recipe.engine.local_world_size = Some(u32::try_from(together).unwrap_or(u32::MAX));
    let workers = recipe.engine.workers.map(f64::from);
    let each = workers.unwrap_or_else(|| (cores / together as f64).floor().max(1.0));
    let (ahead, memory) = loader::ahead(&recipe, each as usize);
    Machine {
        ranks,
        cores,
        workers,
        network: arguments.network.map(|gbit| gbit * 1e9),
        requests: recipe.fetch.concurrency.into(),
        ahead,
        memory: memory as f64,
    }
}

/// The recipe as it is measured: with as many workers as one rank will have, if there are cores for
/// them; and without what would leave something behind, or spare the store the second time.
fn measurable(mut recipe: Recipe, machine: &Machine, ranks: u64, here: usize) -> Recipe {
    let each = (machine.cores / ranks as f64).floor().max(1.0);
    let one_rank = machine.workers.unwrap_or(each).max(1.0);
    recipe.engine.workers = Some((one_rank as u32).min(here.max(1) as u32));
    recipe.engine.ledger = None;
    recipe.engine.metrics = None;
    recipe.fetch.cache = None;
    recipe.plan.epochs = None;
    recipe
}

/// A command can't go on.
fn too_few(what: &str) -> Failure {
    Failure::Other { code: outcome::DATA, message: format!("{what}; give the recipe more samples") }
}
