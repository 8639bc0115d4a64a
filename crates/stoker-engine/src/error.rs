//! What can go wrong, by whose turn it is to act.
//!
//! Nine variants, one per person: the author of the recipe, the owner of the data, the operator of
//! the store, the policy for bad samples, whoever resumes, whoever set the memory limit, whoever
//! runs the machine, nobody (the loader was closed), and us. Errors carry fields, not sentences;
//! `Display` makes the sentence: what failed, why, what to do. They are handled once: passed on, or
//! counted.

mod machine;

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::metrics::Room;
use crate::sample::SampleId;

pub use machine::{MachineError, files_allowed, too_many_files};

/// What a fallible call of the engine returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, by who can mend it.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The author of the recipe: every problem in it, at once.
    Recipe(Vec<Problem>),
    /// The owner of the data: a source, an index or a line is not what it should be.
    Dataset(DatasetError),
    /// The operator of the store: bytes could not be read, after all retries.
    Fetch(Box<FetchError>),
    /// The policy for bad samples: one sample is unusable; its neighbours are fine.
    Sample(Box<SampleError>),
    /// Whoever resumes: the cursor does not belong to this plan, or is damaged.
    Cursor(CursorError),
    /// Whoever set the memory limit: one thing needs more than all of it.
    Budget(BudgetError),
    /// Whoever runs the machine: it refuses a thread, a file or memory.
    Machine(MachineError),
    /// Nobody: the loader was closed.
    Stopped,
    /// Us.
    Bug(String),
}

/// One thing that is wrong in a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where in the document, as `section.key`.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
    /// What to write instead, where we can tell.
    pub hint: Option<String>,
}

/// A data source that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetError {
    /// What is at fault.
    pub kind: DatasetErrorKind,
    /// The line in the source, counted from 1, where one line is meant.
    pub line: Option<u64>,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub hint: Option<String>,
    /// The source.
    pub uri: String,
}

/// What keeps a data source from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetErrorKind {
    /// The data.
    Data,
    /// Too many of its samples, which are listed: the first of them.
    BadSamples(Vec<BadSample>),
    /// The disk: the data's index, the ledger or the local cache can't be written.
    Disk,
}

/// Bytes that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchError {
    /// What kind of failure the last attempt met.
    pub kind: FetchErrorKind,
    /// The bytes that were asked for; `None` is the whole object.
    pub range: Option<Range<u64>>,
    /// How often it was tried.
    pub attempts: u32,
    /// The HTTP status of the last answer, if there was one.
    pub status: Option<u16>,
    /// What the last attempt said.
    pub reason: String,
    /// What to do.
    pub hint: Option<String>,
    /// What the store calls the last request, if it said so: its operator can look it up by that.
    pub request_id: Option<String>,
    /// The object.
    pub uri: String,
}

/// The kinds of failure of a read; the policy treats a missing object as a bad sample and all
/// others as the operator's matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchErrorKind {
    /// The store says that there is no such object.
    NotFound,
    /// The store refuses us.
    Denied,
    /// No credentials, or a store that the recipe does not describe well enough.
    Unconfigured,
    /// The recipe forbids this address.
    Forbidden,
    /// The object is larger than a stated limit.
    TooLarge,
    /// The object is not the one that was opened or indexed: its size or version differs.
    Changed,
    /// Time-outs, resets, 5xx and short bodies, after all retries.
    Transient,
}

/// Why a sample can't be used; the rooms return it, the engine adds which sample it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where it was found.
    pub room: Room,
    /// A stable short name for counting, such as `truncated` or `too-many-pixels`.
    pub code: &'static str,
    /// What is wrong.
    pub reason: String,
    /// What to do, where we can tell.
    pub hint: Option<&'static str>,
}

impl Flaw {
    /// A flaw without a hint.
    pub fn new(room: Room, code: &'static str, reason: impl Into<String>) -> Self {
        Self { room, code, reason: reason.into(), hint: None }
    }

    /// The same flaw with advice.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

/// One unusable sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleError {
    /// Which sample.
    pub id: SampleId,
    /// What is wrong with it, and where that was found.
    pub flaw: Flaw,
    /// The file and line that it stands in, and the image if one is to blame.
    pub origin: String,
}

/// What became of a bad sample in a run that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is not in its batch: another row stands in its place.
    Replaced,
    /// It keeps its place, and nothing of it is learned or shown.
    Neutralised,
    /// It is not in its batch, and nothing stands in its place: it is larger than it was when its
    /// batch was packed, and has no room there.
    LeftOut,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Replaced, Self::Neutralised, Self::LeftOut];

    /// Its one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Neutralised => "neutralised",
            Self::LeftOut => "left-out",
        }
    }
}

/// A bad sample that was gone on from, as a batch remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSample {
    /// Which sample.
    pub id: SampleId,
    /// What became of it.
    pub outcome: Outcome,
    /// Where it was found to be bad.
    pub room: Room,
    /// The flaw's stable short name.
    pub code: String,
    /// What is wrong.
    pub reason: String,
    /// What to do, where we can tell.
    pub hint: Option<String>,
    /// The file and line that it stands in.
    pub origin: String,
}

impl SampleError {
    /// The same, in a run that goes on.
    pub fn into_bad(self, outcome: Outcome) -> BadSample {
        let Self { id, flaw: Flaw { room, code, reason, hint }, origin } = self;
        let (code, hint) = (code.to_owned(), hint.map(str::to_owned));
        BadSample { id, outcome, room, code, reason, hint, origin }
    }
}

/// A cursor that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorError {
    /// The field that differs; empty where it can't be read at all.
    pub field: String,
    /// What this plan has there.
    pub expected: String,
    /// What the cursor has there.
    pub found: String,
    /// What to do.
    pub hint: String,
}

/// One thing that needs more memory than there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetError {
    /// What needs it.
    pub what: String,
    /// How many bytes it needs.
    pub needed: u64,
    /// How many bytes there may be.
    pub limit: u64,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recipe(problems) => {
                let count = problems.len();
                let noun = if count == 1 { "problem" } else { "problems" };
                write!(f, "the recipe has {count} {noun}:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Self::Dataset(error) => {
                write!(f, "{}", error.reason)?;
                hint(f, error.hint.as_deref())?;
                write!(f, ": {}", error.uri)?;
                error.line.map_or(Ok(()), |line| write!(f, ":{line}"))
            }
            Self::Fetch(error) => write!(f, "{error}"),
            Self::Sample(error) => write!(f, "{error}"),
            Self::Cursor(error) if error.field.is_empty() => {
                write!(f, "the cursor can't be read: {}; {}", error.found, error.hint)
            }
            Self::Cursor(error) => write!(
                f,
                "the cursor does not fit: {} is {} there and {} here; {}",
                error.field, error.found, error.expected, error.hint
            ),
            Self::Budget(error) => write!(
                f,
                "{} needs {}, and the limit is {}; {}",
                error.what,
                Bytes(error.needed),
                Bytes(error.limit),
                error.hint
            ),
            Self::Machine(error) => write!(f, "{}: {}; {}", error.what, error.reason, error.hint),
            Self::Stopped => write!(f, "the loader was closed"),
            Self::Bug(what) => write!(f, "a bug in stoker: {what}; please report it"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)?;
        hint(f, self.hint.as_deref())
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        flaw(f, &self.reason, self.room, self.code, self.hint)
    }
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SampleId { dataset, row } = self.id;
        write!(f, "sample {dataset}/{row} can't be used: {}: {}", self.flaw, self.origin)
    }
}

impl fmt::Display for BadSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SampleId { dataset, row } = self.id;
        write!(f, "sample {dataset}/{row} can't be used: ")?;
        flaw(f, &self.reason, self.room, &self.code, self.hint.as_deref())?;
        write!(f, ": {}", self.origin)
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        match (self.status, &self.request_id) {
            (Some(status), Some(id)) => write!(f, " (HTTP {status}, request {id})")?,
            (Some(status), None) => write!(f, " (HTTP {status})")?,
            (None, Some(id)) => write!(f, " (request {id})")?,
            (None, None) => {}
        }
        if self.attempts > 1 {
            write!(f, " after {} attempts", self.attempts)?;
        }
        hint(f, self.hint.as_deref())?;
        write!(f, ": {}", self.uri)?;
        self.range
            .as_ref()
            .map_or(Ok(()), |range| write!(f, " bytes {}..{}", range.start, range.end))
    }
}

fn flaw(
    f: &mut fmt::Formatter<'_>,
    reason: &str,
    room: Room,
    code: &str,
    advice: Option<&str>,
) -> fmt::Result {
    write!(f, "{reason} [{room}/{code}]")?;
    hint(f, advice)
}

fn hint(f: &mut fmt::Formatter<'_>, hint: Option<&str>) -> fmt::Result {
    hint.map_or(Ok(()), |hint| write!(f, "; {hint}"))
}

/// Bytes as a person reads them.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {}", UNITS[unit]) }
    }
}
