//! How a command ends: its exit code says whose turn it is, as the variants of the engine's errors
//! do.

use std::io;

use stoker_engine::error::{DatasetErrorKind, Error, FetchErrorKind};

pub(crate) const OK: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const DATA: u8 = 3;
pub(crate) const DENIED: u8 = 4;
pub(crate) const NOT_FOUND: u8 = 5;
pub(crate) const INTERRUPTED: u8 = 130;

const DENIALS: [FetchErrorKind; 3] =
    [FetchErrorKind::Denied, FetchErrorKind::Unconfigured, FetchErrorKind::Forbidden];

/// An exit code, or why there is none better.
pub(crate) type Outcome = Result<u8, Failure>;

/// What stopped a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine.
    Engine(Error),
    /// Whoever reads stdout.
    Output(io::Error),
    /// The command itself.
    Other {
        /// The exit code.
        code: u8,
        /// What failed, why, what to do.
        message: String,
    },
}

impl Failure {
    /// Says on stderr what happened and gives the exit code.
    #[expect(clippy::print_stderr, reason = "stderr is where a command talks")]
    pub(crate) fn tell(&self) -> u8 {
        match self {
            // Like other filters: a reader that has seen enough is no failure.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return OK,
            Self::Output(error) => eprintln!("stoker: can't write to stdout: {error}"),
            Self::Engine(error) => eprintln!("stoker: {error}"),
            Self::Other { message, .. } => eprintln!("stoker: {message}"),
        }
        self.code()
    }

    fn code(&self) -> u8 {
        match self {
            Self::Engine(error) => code_of(error),
            Self::Output(_) => FAILED,
            Self::Other { code, .. } => *code,
        }
    }
}

/// Whose turn it is after an error.
pub(crate) fn code_of(error: &Error) -> u8 {
    match error {
        Error::Recipe(_) | Error::Cursor(_) | Error::Budget(_) => USAGE,
        Error::Dataset(error) => match error.kind {
            DatasetErrorKind::Data | DatasetErrorKind::BadSamples(_) => DATA,
            DatasetErrorKind::Disk => FAILED,
        },
        Error::Sample(_) => DATA,
        Error::Fetch(error) => match error.kind {
            FetchErrorKind::Transient => FAILED,
            FetchErrorKind::NotFound => NOT_FOUND,
            kind if DENIALS.contains(&kind) => DENIED,
            _ => DATA,
        },
        Error::Stopped => INTERRUPTED,
        Error::Machine(_) | Error::Bug(_) => FAILED,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_engine::error::{BudgetError, DatasetError, FetchError};

    #[test]
    fn each_error_ends_with_the_code_of_whose_turn_it_is() {
        let fetch = |kind| {
            let (reason, uri) = (String::new(), String::new());
            let (range, attempts, status, hint, request_id) = (None, 1, None, None, None);
            let error = FetchError { kind, range, attempts, status, reason, hint, request_id, uri };
            Error::Fetch(Box::new(error))
        };
        let text = String::new;
        let dataset = |kind| {
            let (reason, uri) = (text(), text());
            Error::Dataset(DatasetError { kind, line: None, reason, hint: None, uri })
        };
        let budget = BudgetError { what: text(), needed: 2, limit: 1, hint: text() };
        let cases = [
            (Error::Recipe(Vec::new()), 2),
            (Error::Budget(budget), 2),
            (dataset(DatasetErrorKind::Data), 3),
            (dataset(DatasetErrorKind::BadSamples(Vec::new())), 3),
            (dataset(DatasetErrorKind::Disk), 1),
            (fetch(FetchErrorKind::TooLarge), 3),
            (fetch(FetchErrorKind::Denied), 4),
            (fetch(FetchErrorKind::Unconfigured), 4),
            (fetch(FetchErrorKind::NotFound), 5),
            (fetch(FetchErrorKind::Transient), 1),
            (Error::no_thread("", &io::Error::other("")), 1),
            (Error::Bug(text()), 1),
            (Error::Stopped, 130),
        ];
        for (error, code) in cases {
            assert_eq!(Failure::from(error.clone()).code(), code, "{error:?}");
        }
    }
}
