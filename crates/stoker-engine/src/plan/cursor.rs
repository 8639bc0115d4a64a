//! Where to go on. A cursor holds the number of batches delivered (of the global sequence, so it is
//! the same on every rank) and the identity of its plan, field by field, so that a cursor of
//! another plan is refused by the name of what differs. It is small (under 1 KB) and plain JSON.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::error::{CursorError, Error, Result};
use crate::sample::Position;

/// The format of cursors; raised when their meaning changes.
const VERSION: u32 = 1;

/// More than any run counts, of anything; far enough from the end of `u64` to reckon with.
const MOST: u64 = 1 << 44;

/// Everything that decides what batches hold, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(BTreeMap<String, String>);

impl Identity {
    /// Adds a field.
    pub fn add(&mut self, name: &str, value: impl Display) {
        self.0.insert(name.to_owned(), value.to_string());
    }
}

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// Format of this cursor.
    version: u32,
    /// Batches of the global sequence that have been delivered, on all ranks together.
    batches: u64,
    /// Samples had so far by the rank that saved it, and bad ones that it met: its share of bad
    /// samples is judged, and how many ranks there were is not known here.
    samples: u64,
    bad_samples: u64,
    /// First sample of the window that the next batch belongs to, where samples are packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_start: Option<u64>,
    /// The plan that it belongs to.
    plan: Identity,
}

impl Cursor {
    pub(super) fn new(plan: Identity, batches: u64, samples: u64, bad_samples: u64) -> Self {
        Self { version: VERSION, batches, samples, bad_samples, window_start: None, plan }
    }

    /// The same, for a plan whose samples are packed.
    #[must_use]
    pub fn in_window(self, start: Position) -> Self {
        Self { window_start: Some(start.0), ..self }
    }

    /// Reads a cursor back from the JSON that serde wrote.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| {
            refuse("", "", &error.to_string(), "it is damaged, or was not saved by stoker")
        })
    }

    /// Batches of the global sequence that have been delivered.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Samples had so far by the rank that saved it.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Bad samples met so far by the rank that saved it.
    pub fn bad_samples(&self) -> u64 {
        self.bad_samples
    }

    /// First sample of the window that the next batch belongs to, where samples are packed.
    pub fn window_start(&self) -> Option<Position> {
        self.window_start.map(Position)
    }

    pub(super) fn check(&self, plan: &Identity, packed: bool) -> Result<()> {
        if self.version != VERSION {
            let hint = "it was saved by another version of stoker; go on with that version";
            return Err(refuse("version", &VERSION.to_string(), &self.version.to_string(), hint));
        }
        let numbers = [
            ("batches", self.batches),
            ("samples", self.samples),
            ("bad_samples", self.bad_samples),
            ("window_start", self.window_start.unwrap_or(0)),
        ];
        for (name, number) in numbers {
            if number > MOST {
                let most = format!("at most {MOST}");
                return Err(refuse(name, &most, &number.to_string(), "it is damaged"));
            }
        }
        let absent = || "absent".to_owned();
        for name in plan.0.keys().chain(self.plan.0.keys()) {
            let (here, there) = (plan.0.get(name), self.plan.0.get(name));
            if here != there {
                let (here, there) =
                    (here.cloned().unwrap_or_else(absent), there.cloned().unwrap_or_else(absent));
                let hint = "resume with the recipe and the data that it was saved with, or start \
                            anew without a cursor";
                return Err(refuse(name, &here, &there, hint));
            }
        }
        if packed != self.window_start.is_some() {
            let is = |there| if there { "present" } else { "absent" };
            let (here, there) = (is(packed), is(self.window_start.is_some()));
            return Err(refuse("window_start", here, there, "it is damaged"));
        }
        Ok(())
    }
}

fn refuse(field: &str, expected: &str, found: &str, hint: &str) -> Error {
    Error::Cursor(CursorError {
        field: field.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        hint: hint.to_owned(),
    })
}
