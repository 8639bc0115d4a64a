//! `stoker index`: one pass over the data, so that later runs open at once.

use std::io::Write;

use stoker_engine::loader;

use crate::args::RecipeArguments;
use crate::outcome::{self, Outcome};
use crate::{bar, recipe};

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
        writeln!(out, "path         {}", summary.path.display())?;
        writeln!(out, "fingerprint  {}", summary.fingerprint)?;
    }
    Ok(outcome::OK)
}
