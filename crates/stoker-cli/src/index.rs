//! `stoker index`: one pass over the data, so that later runs open at once.

use std::io::Write;

use stoker_engine::loader::{self, SizesSummary};
use stoker_engine::recipe::Recipe;

use crate::args::IndexArguments;
use crate::outcome::{self, Failure, Outcome};
use crate::{bar, recipe};

/// Notes of a dataset that are shown.
const NOTES: usize = 20;

pub(crate) fn index(arguments: &IndexArguments, out: &mut dyn Write) -> Outcome {
    let recipe = recipe(&arguments.recipe)?;
    let bar = bar::of_bytes();
    let summaries = loader::index(&recipe, &mut bar::follow(&bar));
    bar.finish_and_clear();
    let summaries = summaries?;
    let sizes = if arguments.sizes { measure(&recipe)? } else { Vec::new() };
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
        if let Some(SizesSummary { measured, tokens, bad, path, .. }) = sizes.get(number) {
            writeln!(out, "measured     {measured}, {tokens} tokens; {bad} can't be used")?;
            writeln!(out, "sizes        {}", path.display())?;
        }
    }
    Ok(outcome::OK)
}

fn measure(recipe: &Recipe) -> Result<Vec<SizesSummary>, Failure> {
    let bar = bar::of_samples(0);
    let sizes = loader::measure(recipe.clone(), &mut bar::follow(&bar));
    bar.finish_and_clear();
    Ok(sizes?)
}
