//! The `stoker` command, as a library that the binary and the Python package both call.
//!
//! Data goes to stdout and talk to stderr, so that a pipe gets data only; progress bars and colours
//! appear only on a terminal, colours not where `NO_COLOR` is set. Exit codes, which `--help` lists,
//! say whose turn it is. A reader that goes away (`| head`) is no error.

mod args;
mod bar;
mod doctor;
mod index;
mod interrupt;
mod outcome;
mod peek;
mod plan;
mod run;
mod serve;
mod size;
mod top;
mod verify;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};

use clap::Parser;
use stoker_engine::recipe::{Document, Recipe};

use args::{Arguments, Command, RecipeArguments};
use outcome::{Failure, Outcome};

/// Runs the command; the first argument is its name. Gives the exit code back.
pub fn main<A: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = A>) -> u8 {
    let command = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments.command,
        Err(error) => {
            // Usage goes to stderr; help and version, which were asked for, to stdout.
            error.print().unwrap_or_default();
            return u8::try_from(error.exit_code()).unwrap_or(outcome::USAGE);
        }
    };
    let _interruptible = interrupt::ends_the_process();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = execute(command, &mut out).and_then(|code| Ok(out.flush().map(|()| code)?));
    match done {
        Ok(code) => code,
        Err(failure) => {
            out.flush().unwrap_or_default();
            failure.tell()
        }
    }
}

fn execute(command: Command, out: &mut dyn Write) -> Outcome {
    match command {
        Command::Run(arguments) => run::run(&arguments, out),
        Command::Peek(arguments) => peek::peek(&arguments, out, colours()),
        Command::Index(arguments) => index::index(&arguments, out),
        Command::Plan(arguments) => plan::plan(&arguments, out),
        Command::Verify(arguments) => verify::verify(&arguments, out),
        Command::Top(arguments) => top::top(&arguments, out),
        Command::Doctor(arguments) => doctor::doctor(&arguments, out, colours()),
        Command::Size(arguments) => size::size(&arguments, out),
        Command::Recipe(arguments) => {
            write!(out, "{}", recipe(&arguments)?.to_toml())?;
            Ok(outcome::OK)
        }
        Command::S3(arguments) => serve::serve(&arguments, out),
        Command::Demo { .. } => Err(Failure::Other {
            code: outcome::USAGE,
            message: "the demo compares with a Python loader and is part of the Python package; \
                      install the wheel and run `stoker demo` there"
                .to_owned(),
        }),
    }
}

/// Reads the recipe that a command is about.
fn recipe(arguments: &RecipeArguments) -> Result<Recipe, Failure> {
    Ok(document(arguments)?.recipe()?)
}

/// It as it was written, with what the command line overrides.
fn document(arguments: &RecipeArguments) -> Result<Document, Failure> {
    let mut document = Document::from_file(&arguments.recipe)?;
    for assignment in &arguments.set {
        document.set(assignment);
    }
    Ok(document)
}

/// Whether to colour what goes to stdout.
fn colours() -> bool {
    coloured(io::stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref())
}

fn coloured(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_without_no_color() {
        assert!(coloured(true, None));
        assert!(coloured(true, Some(OsStr::new(""))));
        assert!(!coloured(true, Some(OsStr::new("1"))));
        assert!(!coloured(false, None));
    }
}
