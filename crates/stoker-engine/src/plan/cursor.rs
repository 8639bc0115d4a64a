//! Where to go on. A cursor holds the number of batches delivered (of the global sequence, so it is
//! the same on every rank) and the identity of its plan, field by field, so that a cursor of
//! another plan is refused by the name of what differs. It is small (under 1 KB) and plain JSON.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{CursorError, Error, Result};
use crate::sample::Position;

/// The format of cursors; raised when their meaning changes.
const VERSION: u32 = 2;

/// More than any run counts, of anything; far enough from the end of `u64` to reckon with.
const MOST: u64 = 1 << 44;

/// What stands in the place of a field that is not there.
const ABSENT: &str = "absent";

/// What is most likely wrong with a cursor that no plan could have made.
const DAMAGED: &str = "it is damaged, or was not saved by stoker";

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
    /// Whether the consumer saw the end of the run. Gone through again it then begins anew, while
    /// one whose last batch was just handed over has its end yet to come.
    ended: bool,
    /// First sample of the window that the next batch belongs to, where samples are packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_start: Option<u64>,
    /// The plan that it belongs to.
    plan: Identity,
}

impl Cursor {
    pub(super) fn new(plan: Identity, batches: u64, samples: u64, bad_samples: u64) -> Self {
        let (window_start, ended) = (None, false);
        Self { version: VERSION, batches, samples, bad_samples, window_start, ended, plan }
    }

    /// The same, for a plan whose samples are packed.
    #[must_use]
    pub fn in_window(self, start: Position) -> Self {
        Self { window_start: Some(start.0), ..self }
    }

    /// The same, after the end of the run was seen.
    #[must_use]
    pub(crate) fn ending(self) -> Self {
        Self { ended: true, ..self }
    }

    /// Reads a cursor back from the JSON that serde wrote; says which field is damaged.
    pub fn from_json(json: &str) -> Result<Self> {
        let fields = serde_json::from_str(json);
        let mut fields: Map<String, Value> =
            fields.map_err(|error| Self::unreadable(&error.to_string()))?;
        let number = "a whole number";
        let cursor = Self {
            // First, since another version may have other fields.
            version: checked(take(&mut fields, "version", number)?)?,
            batches: take(&mut fields, "batches", number)?,
            samples: take(&mut fields, "samples", number)?,
            bad_samples: take(&mut fields, "bad_samples", number)?,
            window_start: if fields.contains_key("window_start") {
                Some(take(&mut fields, "window_start", number)?)
            } else {
                None
            },
            ended: take(&mut fields, "ended", "true or false")?,
            plan: take(&mut fields, "plan", "a table of texts")?,
        };
        match fields.iter().next() {
            None => Ok(cursor),
            Some((name, value)) => Err(refuse(name, ABSENT, &shown(value), DAMAGED)),
        }
    }

    /// What is said of something that is no cursor at all.
    pub fn unreadable(reason: &str) -> Error {
        refuse("", "", reason, DAMAGED)
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

    /// Whether the end of the run was seen.
    pub fn ended(&self) -> bool {
        self.ended
    }

    pub(super) fn check(&self, plan: &Identity, packed: bool) -> Result<()> {
        checked(self.version)?;
        let numbers = [
            ("batches", self.batches),
            ("samples", self.samples),
            ("bad_samples", self.bad_samples),
            ("window_start", self.window_start.unwrap_or(0)),
        ];
        for (name, number) in numbers {
            if number > MOST {
                let most = format!("at most {MOST}");
                return Err(refuse(name, &most, &number.to_string(), DAMAGED));
            }
        }
        let absent = || ABSENT.to_owned();
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
            let is = |there| if there { "present" } else { ABSENT };
            let (here, there) = (is(packed), is(self.window_start.is_some()));
            return Err(refuse("window_start", here, there, DAMAGED));
        }
        Ok(())
    }
}

fn checked(version: u32) -> Result<u32> {
    let hint = "it was saved by another version of stoker; go on with that version";
    let (here, there) = (VERSION.to_string(), version.to_string());
    if version == VERSION { Ok(version) } else { Err(refuse("version", &here, &there, hint)) }
}

/// Takes a field out of a document.
fn take<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
    expected: &str,
) -> Result<T> {
    let value = fields.remove(name);
    let found = value.as_ref().map_or_else(|| ABSENT.to_owned(), shown);
    let read = value.and_then(|value| serde_json::from_value(value).ok());
    read.ok_or_else(|| refuse(name, expected, &found, DAMAGED))
}

/// A value as an error shows it: whatever it is, not at length.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn refuse(field: &str, expected: &str, found: &str, hint: &str) -> Error {
    Error::Cursor(CursorError {
        field: field.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        hint: hint.to_owned(),
    })
}
