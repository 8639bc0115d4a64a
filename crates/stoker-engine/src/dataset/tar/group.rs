//! Samples of a WebDataset: members that stand together under one key.
//!
//! What would be lost in silence elsewhere is told: a second member of the same name is a flaw of
//! its sample, and members that come back to a key that was left make the shard unusable, since
//! nobody can tell the halves of a sample from two samples.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::dataset::entry::{Entry, Part};

/// Most members of one sample; more are no sample, but names that share what stands before a dot.
pub(super) const MOST_MEMBERS: usize = 4096;
/// Most bytes of all their extensions; a name may have a megabyte, and a few bytes unpack to many.
const MOST_LETTERS: usize = 1 << 20;

/// Puts members together.
#[derive(Default)]
pub(super) struct Grouping {
    key: Vec<u8>,
    current: Option<Entry>,
    /// Bytes of the extensions of the current sample.
    letters: usize,
    /// Hashes of the keys that were left, and where each stood.
    left: HashMap<u64, u64>,
}

/// A key that was left before: where it stood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Again(pub(super) u64);

impl Grouping {
    /// Begins or goes on with the sample of that key; the one before, if it is over.
    pub(super) fn enter(&mut self, key: &[u8], place: u64) -> Result<Option<Entry>, Again> {
        if self.current.is_some() && self.key == key {
            return Ok(None);
        }
        let over = self.end();
        if let Some(&before) = self.left.get(&xxh3_64(key)) {
            return Err(Again(before));
        }
        key.clone_into(&mut self.key);
        let key = String::from_utf8_lossy(key).into_owned();
        self.letters = 0;
        self.current = Some(Entry { key, place, twice: None, parts: Vec::new() });
        Ok(over)
    }

    /// Adds a member to the current sample; `false` if there are too many.
    pub(super) fn add(&mut self, part: Part) -> bool {
        let sample = self.current.as_mut().expect("a sample was entered before");
        if sample.parts.iter().any(|known| known.name == part.name) {
            sample.twice.get_or_insert_with(|| part.name.clone());
        }
        self.letters += part.name.len();
        sample.parts.push(part);
        sample.parts.len() <= MOST_MEMBERS && self.letters <= MOST_LETTERS
    }

    /// The last sample.
    pub(super) fn end(&mut self) -> Option<Entry> {
        let over = self.current.take()?;
        self.left.insert(xxh3_64(&self.key), over.place);
        Some(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members as `key.extension` become samples as `key: extensions`.
    fn grouped(members: &[&str]) -> Result<Vec<String>, Again> {
        let mut grouping = Grouping::default();
        let mut samples = Vec::new();
        for (number, member) in members.iter().enumerate() {
            let (key, extension) = member.split_once('.').unwrap();
            samples.extend(grouping.enter(key.as_bytes(), number as u64)?);
            let begin = number as u64;
            assert!(grouping.add(Part { name: extension.into(), begin, size: 1 }));
        }
        samples.extend(grouping.end());
        let shown = samples.iter().map(|sample| {
            let extensions = sample.parts.iter().map(|part| part.name.as_str());
            let extensions = extensions.collect::<Vec<_>>().join(" ");
            let twice = sample.twice.as_deref().unwrap_or_default();
            format!("{}@{}: {extensions} {twice}", sample.key, sample.place)
        });
        Ok(shown.collect())
    }

    #[test]
    fn members_that_stand_together_are_a_sample() {
        let samples = grouped(&["a.jpg", "a.json", "b.json"]).unwrap();
        assert_eq!(samples, ["a@0: jpg json ", "b@2: json "]);
        assert_eq!(grouped(&["a.jpg", "a.jpg"]).unwrap(), ["a@0: jpg jpg jpg"]);
        assert_eq!(grouped(&["a.jpg", "b.jpg", "a.json"]), Err(Again(0)));
    }
}
