//! What a check found: how bad it is, in words, and what to do.

use std::io::{self, Write};

use serde_json::{Value, json};
use stoker_engine::error::Error;

use crate::outcome;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// A run goes, and not as well as it might.
    Warning,
    /// A run ends with it.
    Failure,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "\x1b[1;32m",
            Self::Warning => "\x1b[1;33m",
            Self::Failure => "\x1b[1;31m",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// What it is, and what to do about it.
    pub(super) words: String,
    /// Whose turn it is, as the exit codes say it.
    pub(super) code: u8,
    /// Numbers, for programs.
    pub(super) figures: Value,
}

impl Finding {
    pub(super) fn ok(check: &'static str, words: impl Into<String>) -> Self {
        let (words, figures) = (words.into(), Value::Null);
        Self { check, level: Level::Ok, words, code: outcome::OK, figures }
    }

    /// What is wrong, and what to do.
    pub(super) fn warning(check: &'static str, what: impl AsRef<str>, hint: &str) -> Self {
        let words = format!("{}; {hint}", what.as_ref());
        Self { level: Level::Warning, ..Self::ok(check, words) }
    }

    pub(super) fn failure(
        check: &'static str,
        code: u8,
        what: impl AsRef<str>,
        hint: &str,
    ) -> Self {
        Self { level: Level::Failure, code, ..Self::warning(check, what, hint) }
    }

    /// An error of the engine, which says itself what to do.
    pub(super) fn error(check: &'static str, error: &Error) -> Self {
        let (level, code) = (Level::Failure, outcome::code_of(error));
        Self { level, code, ..Self::ok(check, error.to_string()) }
    }

    pub(super) fn with(self, figures: Value) -> Self {
        Self { figures, ..self }
    }

    /// One line, whatever data or a store put into the words.
    pub(super) fn write(&self, out: &mut dyn Write, colours: bool) -> io::Result<()> {
        let level = self.level.as_str();
        let (on, off) = if colours { (self.level.colour(), "\x1b[0m") } else { ("", "") };
        let words = one_line(&self.words);
        writeln!(out, "{:<12} {on}{level:<8}{off} {words}", self.check)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "check": self.check,
            "level": self.level.as_str(),
            "words": self.words,
            "figures": self.figures,
        })
    }
}

fn one_line(words: &str) -> String {
    let mut line = String::with_capacity(words.len());
    for part in words.split('\n').map(str::trim) {
        if !line.is_empty() && !part.is_empty() {
            line.push(' ');
        }
        for letter in part.chars() {
            if letter.is_control() {
                line.extend(letter.escape_default());
            } else {
                line.push(letter);
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_that_drives_no_terminal() {
        let mut shown = Vec::new();
        let finding = Finding::failure("model", 2, "the recipe has\n  a problem\x1b[2J", "mend it");
        finding.write(&mut shown, false).unwrap();
        let expected = "model        failure  the recipe has a problem\\u{1b}[2J; mend it\n";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }
}
