//! Walks one section: each getter takes a key out, checks its type and range, and writes down what
//! is wrong with it. What is left in the end was never asked for, and is refused with a suggestion.
//!
//! A getter returns `None` both where the key is absent and where it is wrong: the caller goes on
//! with the default, so that all problems come out in one pass, and the recipe is thrown away if
//! there were any.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value};

use super::choices::Choices;
use super::decimal::Decimal;
use super::{suggest, units};
use crate::error::Problem;

/// One section while it is read.
pub(super) struct Reader<'a> {
    /// What kind of section it is; empty at the top of the document.
    section: &'static str,
    /// Where it stands.
    at: String,
    entries: Map<String, Value>,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// The top of the document.
    pub(super) fn new(entries: Map<String, Value>, problems: &'a mut Vec<Problem>) -> Self {
        Self { section: "", at: String::new(), entries, problems }
    }

    /// Reads a section; an absent one is read as an empty one.
    pub(super) fn section<T: Default>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let entries = match self.take(name) {
            None => Map::new(),
            Some(Value::Object(entries)) => entries,
            Some(other) => {
                let hint = match other {
                    Value::Array(_) if name == "dataset" => "write [[datasets]] for a list".into(),
                    _ => format!("write [{name}] and its keys below"),
                };
                self.unexpected(name, "a section", &other, Some(hint));
                return T::default();
            }
        };
        self.within(name, name, entries, read)
    }

    /// Reads a list of sections; `kind` is where it stands. In paths they have the name that they
    /// give under the key `name`, or else their number from 0.
    pub(super) fn list<T>(
        &mut self,
        kind: &'static str,
        name: &str,
        mut read: impl FnMut(&mut Reader<'_>) -> T,
    ) -> Option<Vec<T>> {
        let key = kind.rsplit('.').next().unwrap_or(kind);
        let items = match self.take(key)? {
            Value::Array(items) => items,
            other => {
                let hint = "write [[datasets]] once for each dataset".to_owned();
                self.unexpected(key, "a list", &other, Some(hint).filter(|_| key == kind));
                return None;
            }
        };
        let mut list = Vec::new();
        for (number, item) in items.into_iter().enumerate() {
            let Value::Object(entries) = item else {
                self.unexpected(key, "a list of tables", &item, None);
                return None;
            };
            let step = match entries.get(name) {
                Some(Value::String(name)) if !name.is_empty() => name.clone(),
                _ => number.to_string(),
            };
            list.push(self.within(kind, &format!("{key}.{step}"), entries, &mut read));
        }
        Some(list)
    }

    /// Reads a table whose keys are the user's own; an absent one is not read.
    pub(super) fn own_keys(&mut self, key: &'static str, read: impl FnOnce(&mut Reader<'_>)) {
        if let Some(entries) = self.table(key) {
            self.within(self.section, key, entries, read);
        }
    }

    fn within<T>(
        &mut self,
        section: &'static str,
        step: &str,
        entries: Map<String, Value>,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let mut reader =
            Reader { section, at: path(&self.at, step), entries, problems: self.problems };
        let value = read(&mut reader);
        reader.finish();
        value
    }

    /// Reads a table within the section; `kind` is what kind of section it is. An absent one is read
    /// as an empty one.
    pub(super) fn inner<T: Default>(
        &mut self,
        key: &'static str,
        kind: &'static str,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let given = self.has(key);
        match self.table(key) {
            None if given => T::default(),
            entries => self.within(kind, key, entries.unwrap_or_default(), read),
        }
    }

    /// Refuses what was not asked for.
    pub(super) fn finish(self) {
        for key in self.entries.keys() {
            let hint = suggest::for_key(self.section, key);
            let what =
                if self.section.is_empty() { "unknown section or key" } else { "unknown key" };
            self.problems.push(Problem {
                path: path(&self.at, key),
                reason: what.to_owned(),
                hint: Some(hint),
            });
        }
    }

    /// Text that is not empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) if text.trim().is_empty() => {
                self.problem(key, "is empty", Some("leave it out to get the default"));
                None
            }
            Value::String(text) => Some(text),
            other => {
                let hint =
                    (!other.is_object() && !other.is_array()).then(|| format!("write \"{other}\""));
                self.unexpected(key, "text", &other, hint);
                None
            }
        }
    }

    /// Text that is not empty, or a list of such.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        if !matches!(self.entries.get(key), Some(Value::Array(_))) {
            return self.text(key).map(|text| vec![text]);
        }
        let Some(Value::Array(items)) = self.take(key) else { return None };
        if items.is_empty() {
            self.problem(key, "is an empty list", Some("name at least one"));
            return None;
        }
        let mut texts = Vec::new();
        for item in items {
            match item {
                Value::String(text) if !text.trim().is_empty() => texts.push(text),
                other => {
                    self.unexpected(key, "a list of text", &other, None);
                    return None;
                }
            }
        }
        Some(texts)
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(flag) => Some(flag),
            other => {
                self.unexpected(key, "true or false", &other, None);
                None
            }
        }
    }

    /// A whole number.
    pub(super) fn whole<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T>
    where
        T: Copy + PartialOrd + Display + TryFrom<u64>,
    {
        let value = self.take(key)?;
        let number = value.as_u64().and_then(|number| T::try_from(number).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None if value.is_u64() || value.is_i64() => {
                self.out_of_range(key, &value, range.start(), range.end());
                None
            }
            None => {
                let hint =
                    value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15);
                let hint = hint.map(|float| format!("write {float:.0}"));
                self.unexpected(key, "a whole number", &value, hint);
                None
            }
        }
    }

    /// A number of bytes.
    pub(super) fn size(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.take(key)?;
        let bytes = match &value {
            Value::String(text) => units::parse_size(text),
            other => other.as_u64(),
        };
        match bytes {
            Some(bytes) if range.contains(&bytes) => bytes.into(),
            None if !value.is_i64() => {
                let hint = "sizes are bytes, or text with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB";
                self.unexpected(key, "a size such as \"256MiB\"", &value, Some(hint.to_owned()));
                None
            }
            _ => {
                let (low, high) =
                    (units::write_size(*range.start()), units::write_size(*range.end()));
                self.out_of_range(key, &value, &low, &high);
                None
            }
        }
    }

    /// A duration.
    pub(super) fn duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let value = self.take(key)?;
        let duration = match &value {
            Value::String(text) => units::parse_duration(text),
            other => other.as_f64().and_then(units::seconds),
        };
        match duration {
            Some(duration) if range.contains(&duration) => duration.into(),
            None if !value.is_number() => {
                let hint = "durations are seconds, or text with ms, s, min or h";
                self.unexpected(key, "a duration such as \"5s\"", &value, Some(hint.to_owned()));
                None
            }
            _ => {
                let ends = (range.start(), range.end());
                let (low, high) = (units::write_duration(*ends.0), units::write_duration(*ends.1));
                self.out_of_range(key, &value, &low, &high);
                None
            }
        }
    }

    /// A number from 0 to 1.
    pub(super) fn share(&mut self, key: &'static str) -> Option<f64> {
        let value = self.take(key)?;
        match value.as_f64() {
            Some(share) if (0.0..=1.0).contains(&share) => Some(share),
            Some(_) => {
                self.out_of_range(key, &value, &0, &1);
                None
            }
            None => {
                self.unexpected(key, "a number from 0 to 1", &value, None);
                None
            }
        }
    }

    /// A decimal.
    pub(super) fn decimal(&mut self, key: &str, range: &RangeInclusive<f64>) -> Option<Decimal> {
        let value = self.take(key)?;
        let Some(number) = value.as_f64() else {
            self.unexpected(key, "a number", &value, None);
            return None;
        };
        if !range.contains(&number) {
            self.out_of_range(key, &value, range.start(), range.end());
            return None;
        }
        Decimal::new(number)
    }

    /// One of a few names.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, choices: &Choices<T>) -> Option<T> {
        let value = self.take(key)?;
        let found = choices.iter().find(|(name, _)| value == *name);
        if let Some((_, choice)) = found {
            return Some(*choice);
        }
        let names = || choices.iter().map(|(name, _)| *name);
        let mut hint = format!("allowed: {}", names().collect::<Vec<_>>().join(", "));
        let near = value.as_str().map(|text| text.replace('_', "-"));
        if let Some(near) = near.and_then(|text| suggest::nearest(&text, names())) {
            hint = format!("did you mean \"{near}\"? {hint}");
        }
        self.problem(key, format!("unknown value {}", excerpt(&value)), Some(hint));
        None
    }

    /// A table whose keys are the user's own.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Map<String, Value>> {
        match self.take(key)? {
            Value::Object(table) => Some(table),
            other => {
                self.unexpected(key, "a table", &other, None);
                None
            }
        }
    }

    /// Writes down what is wrong with a key.
    pub(super) fn problem(
        &mut self,
        key: &str,
        reason: impl Into<String>,
        hint: Option<impl Into<String>>,
    ) {
        let path = path(&self.at, key);
        self.problems.push(Problem { path, reason: reason.into(), hint: hint.map(Into::into) });
    }

    /// The keys that are left.
    pub(super) fn keys(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Lets go of a key that was answered.
    pub(super) fn drop(&mut self, key: &str) {
        self.take(key);
    }

    /// Whether a key was given.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| !value.is_null())
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.entries.shift_remove(key).filter(|value| !value.is_null())
    }

    fn unexpected(&mut self, key: &str, expected: &str, found: &Value, hint: Option<String>) {
        self.problem(key, format!("expected {expected}, found {}", excerpt(found)), hint);
    }

    fn out_of_range(&mut self, key: &str, found: &Value, low: &dyn Display, high: &dyn Display) {
        let reason = format!("{} is out of range", excerpt(found));
        self.problem(key, reason, Some(format!("allowed: {low} to {high}")));
    }
}

fn path(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

/// A value as it is shown in an error: in full where it is short.
fn excerpt(value: &Value) -> String {
    const LONGEST: usize = 60;
    match value {
        Value::Object(_) => "a table".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) if text.chars().count() > LONGEST => {
            let mut start: String = text.chars().take(LONGEST).collect();
            start.push('…');
            Value::from(start).to_string()
        }
        other => other.to_string(),
    }
}
