//! `stoker plan`: what a run will see of each dataset, before it is begun. The place to find out that
//! a small dataset with a large weight is seen forty times, or a large one not once.

use std::io::Write;

use serde_json::{Value, json};
use stoker_engine::loader::{self, Length, Outlook};
use stoker_engine::recipe::{Remainder, Share};

use crate::args::PlanArguments;
use crate::outcome::{self, Failure, Outcome};
use crate::{bar, recipe};

pub(crate) fn plan(arguments: &PlanArguments, out: &mut dyn Write) -> Outcome {
    let recipe = recipe(&arguments.recipe)?;
    if recipe.pack.batch_size.is_none() && arguments.batches.is_some() {
        return Err(unknown_batches());
    }
    let bar = bar::of_bytes();
    let (ranks, batches) = (arguments.world_size, arguments.batches);
    let seen = loader::outlook(&recipe, ranks, batches, &mut bar::follow(&bar));
    bar.finish_and_clear();
    let (seen, length) = seen?;
    let lines: Vec<Line> = seen.iter().map(|one| Line::new(one, &seen, arguments)).collect();
    let run = Run { length, ends: recipe.plan.epochs.is_some(), remainder: recipe.plan.remainder };
    if arguments.json {
        write_json(out, &lines, &run, arguments)?;
    } else {
        write_table(out, &lines, &run, arguments)?;
    }
    Ok(outcome::OK)
}

fn unknown_batches() -> Failure {
    let message = "how many samples --batches are is not known: batches of pack.max-tokens hold as \
                   many as go in; leave --batches out";
    Failure::Other { code: outcome::USAGE, message: message.to_owned() }
}

/// How long the run is, and why.
struct Run {
    length: Length,
    /// Whether the recipe ends it; else one epoch of it is shown.
    ends: bool,
    remainder: Remainder,
}

impl Run {
    /// What becomes of samples that make no whole round of batches.
    fn remainder(&self) -> Option<String> {
        let Length { remainder: count, .. } = self.length;
        (self.ends && count > 0).then(|| match self.remainder {
            Remainder::Fill => {
                format!("the last round is filled up with {count} of the epoch after")
            }
            Remainder::Pad => format!("{count} places of the last round are padding"),
            Remainder::Drop => format!("{count} at the end make no whole round, and are left out"),
        })
    }
}

/// What is told of one dataset.
struct Line<'a> {
    seen: &'a Outlook,
    share: f64,
    epochs: f64,
    warning: Option<String>,
}

impl<'a> Line<'a> {
    fn new(seen: &'a Outlook, all: &[Outlook], arguments: &PlanArguments) -> Self {
        let samples: u64 = all.iter().map(|one| one.samples).sum();
        let share = seen.samples as f64 / samples.max(1) as f64;
        let epochs = seen.samples as f64 / seen.rows as f64;
        let warning = warning(seen, epochs, arguments.most_epochs);
        Self { seen, share, epochs, warning }
    }

    fn asked(&self) -> String {
        match self.seen.asked {
            Share::Rows => "rows".to_owned(),
            Share::Weight(weight) => format!("weight {}", weight.to_f64()),
            Share::Epochs(epochs) => format!("epochs {}", epochs.to_f64()),
        }
    }
}

fn warning(seen: &Outlook, epochs: f64, most: f64) -> Option<String> {
    let Outlook { name, rows, samples, .. } = seen;
    if *samples == 0 {
        return Some(format!("{name} is not seen at all"));
    }
    if samples < rows {
        return Some(format!(
            "{name} is not seen whole: {} of its rows are left out",
            rows - samples
        ));
    }
    (epochs > most).then(|| {
        format!("{name} is seen {epochs:.1} times, and more than {most} times is seldom worth it")
    })
}

fn write_table(
    out: &mut dyn Write,
    lines: &[Line<'_>],
    run: &Run,
    arguments: &PlanArguments,
) -> Result<(), Failure> {
    let head = ["dataset", "asked", "rows", "samples", "share", "epochs", "tokens"];
    // A column that nothing is known of is left out.
    let columns = if lines.iter().any(|line| line.seen.tokens.is_some()) { 7 } else { 6 };
    let mut table = vec![head.map(str::to_owned)];
    table.extend(lines.iter().map(|line| {
        let Outlook { name, rows, samples, tokens, .. } = line.seen;
        let (share, epochs) = (format!("{:.2} %", line.share * 100.0), line.epochs);
        let tokens = tokens.map_or("?".to_owned(), |tokens| tokens.to_string());
        let (rows, samples) = (rows.to_string(), samples.to_string());
        [name.clone(), line.asked(), rows, samples, share, format!("{epochs:.2}"), tokens]
    }));
    let widest = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4, 5, 6].map(widest);
    for [name, asked, numbers @ ..] in &table {
        write!(out, "{name:<0$}  {asked:<1$}", widths[0], widths[1])?;
        for (number, width) in numbers.iter().zip(&widths[2..columns]) {
            write!(out, "  {number:>width$}")?;
        }
        writeln!(out)?;
    }
    let Length { samples, batches, .. } = run.length;
    let ranks = match arguments.world_size {
        1 => String::new(),
        ranks => format!(" on each of {ranks} ranks"),
    };
    let why = match (arguments.batches, run.ends) {
        (Some(_), _) => "",
        (None, true) => ": all that the recipe asks for",
        (None, false) => ": one epoch of an endless recipe",
    };
    match batches {
        Some(batches) => writeln!(out, "\n{samples} samples, {batches} batches{ranks}{why}")?,
        None => writeln!(out, "\n{samples} samples in batches of pack.max-tokens{why}")?,
    }
    if let Some(remainder) = run.remainder() {
        writeln!(out, "{remainder}")?;
    }
    let mut warnings = lines.iter().filter_map(|line| line.warning.as_deref()).peekable();
    if warnings.peek().is_some() {
        writeln!(out)?;
    }
    for warning in warnings {
        writeln!(out, "! {warning}")?;
    }
    Ok(())
}

fn write_json(
    out: &mut dyn Write,
    lines: &[Line<'_>],
    run: &Run,
    arguments: &PlanArguments,
) -> Result<(), Failure> {
    let datasets: Vec<Value> = lines
        .iter()
        .map(|line| {
            let (weight, epochs_asked) = match line.seen.asked {
                Share::Rows => (None, None),
                Share::Weight(weight) => (Some(weight.to_f64()), None),
                Share::Epochs(epochs) => (None, Some(epochs.to_f64())),
            };
            json!({
                "name": line.seen.name,
                "weight": weight,
                "epochs_asked": epochs_asked,
                "rows": line.seen.rows,
                "samples": line.seen.samples,
                "share": line.share,
                "epochs": line.epochs,
                "tokens": line.seen.tokens,
                "warning": line.warning,
            })
        })
        .collect();
    let whole = json!({
        "samples": run.length.samples,
        "batches_per_rank": run.length.batches,
        "world_size": arguments.world_size,
        "endless": !run.ends,
        "remainder": run.remainder.as_str(),
        "remainder_samples": run.length.remainder,
        "datasets": datasets,
    });
    writeln!(out, "{whole:#}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_engine::recipe::Decimal;

    fn seen(name: &str, rows: u64, samples: u64) -> Outlook {
        let asked = Share::Weight(Decimal::new(2.5).unwrap());
        Outlook { name: name.into(), asked, rows, samples, tokens: None }
    }

    #[test]
    fn datasets_that_are_seen_too_little_or_too_often_are_named() {
        let warned =
            |rows, samples| warning(&seen("a", rows, samples), samples as f64 / rows as f64, 4.0);
        assert_eq!(warned(10, 0).unwrap(), "a is not seen at all");
        assert_eq!(warned(10, 4).unwrap(), "a is not seen whole: 6 of its rows are left out");
        assert_eq!((warned(10, 10), warned(10, 40)), (None, None));
        assert_eq!(
            warned(10, 41).unwrap(),
            "a is seen 4.1 times, and more than 4 times is seldom worth it"
        );
    }
}
