//! `stoker index`: one pass over the data, so that later runs open at once.

use std::io::Write;

use stoker_engine::loader;

use crate::args::RecipeArguments;
use crate::outcome::{self, Outcome};
use crate::{bar, recipe};

/// Notes of a dataset that are shown.
const NOTES: usize = 20;

pub(crate) fn index(arguments: &RecipeArguments, out: &mut dyn Write) -> Outcome {
    let recipe = recipe(arguments)?;
    let bar = bar::of_bytes();
    let summaries = loader::index(&recipe, &mut bar::follow(&bar));
    bar.finish_and_clear();
    let summaries = summaries?;
    for (number, summary) in summaries.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        if summaries.len() > 1 {
            writeln!(out, "dataset      {}", summary.name)?;
        }
        writeln!(out, "rows         {}", summary.rows)?;
        if summary.shards > 1 {
            writeln!(out, "shards       {}", summary.shards)?;
        }
        writeln!(out, "path         {}", summary.path.display())?;
        writeln!(out, "fingerprint  {}", summary.fingerprint)?;
        for note in summary.notes.iter().take(NOTES) {
            writeln!(out, "note         {note}")?;
        }
        if let Some(more) = summary.notes.len().checked_sub(NOTES).filter(|more| *more > 0) {
            writeln!(out, "note         and {more} more")?;
        }
    }
    Ok(outcome::OK)
}
