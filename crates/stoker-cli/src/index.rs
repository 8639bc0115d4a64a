//! `stoker index`: one pass over the data, so that later runs open at once.

use std::io::Write;

use stoker_engine::loader;

use crate::args::RecipeArguments;
use crate::outcome::{self, Outcome};
use crate::{bar, recipe};

pub(crate) fn index(arguments: &RecipeArguments, out: &mut dyn Write) -> Outcome {
    let recipe = recipe(arguments)?;
    let bar = bar::of_bytes();
    let summary = loader::index(&recipe, &mut bar::follow(&bar));
    bar.finish_and_clear();
    let summary = summary?;
    writeln!(out, "rows         {}", summary.rows)?;
    writeln!(out, "path         {}", summary.path.display())?;
    writeln!(out, "fingerprint  {}", summary.fingerprint)?;
    Ok(outcome::OK)
}
