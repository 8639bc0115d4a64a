//! Samples of a WebDataset: members that stand together under one key, as an entry of the index.
//!
//! The index knows all members of a sample, whatever they are: which of them are read is up to the
//! recipe. What would be lost in silence elsewhere is told: a second member of the same name is a
//! flaw of its sample, and members that come back to a key that was left make the shard unusable,
//! since nobody can tell the halves of a sample from two samples.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::dataset::entries::{put_bytes, put_number, take_bytes, take_number};

/// Most members of one sample; more are no sample, but names that share what stands before a dot.
pub(super) const MOST_MEMBERS: usize = 4096;

/// A member of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dataset) struct Part {
    /// In lower case; what is no UTF-8 is replaced.
    pub(in crate::dataset) extension: String,
    /// Where its content begins: in the shard, or in what was taken out of it.
    pub(in crate::dataset) begin: u64,
    pub(in crate::dataset) size: u64,
}

impl Part {
    pub(in crate::dataset) fn end(&self) -> u64 {
        self.begin + self.size
    }
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dataset) struct Sample {
    /// What is no UTF-8 is replaced: it is for people.
    pub(in crate::dataset) key: String,
    /// Where its first header begins in the archive.
    pub(in crate::dataset) header: u64,
    /// An extension that two members have.
    pub(in crate::dataset) twice: Option<String>,
    pub(in crate::dataset) parts: Vec<Part>,
}

impl Sample {
    pub(in crate::dataset) fn to_bytes(&self) -> Vec<u8> {
        let mut entry = Vec::new();
        put_number(&mut entry, self.header);
        put_bytes(&mut entry, self.key.as_bytes());
        match &self.twice {
            None => put_number(&mut entry, 0),
            Some(extension) => {
                put_number(&mut entry, 1);
                put_bytes(&mut entry, extension.as_bytes());
            }
        }
        let mut end = 0;
        for part in &self.parts {
            put_bytes(&mut entry, part.extension.as_bytes());
            put_number(&mut entry, part.begin - end);
            put_number(&mut entry, part.size);
            end = part.end();
        }
        entry
    }

    pub(in crate::dataset) fn from_bytes(mut entry: &[u8]) -> Option<Self> {
        let entry = &mut entry;
        let text = |entry: &mut &[u8]| String::from_utf8(take_bytes(entry)?.to_vec()).ok();
        let (header, key) = (take_number(entry)?, text(entry)?);
        let twice = match take_number(entry)? {
            0 => None,
            1 => Some(text(entry)?),
            _ => return None,
        };
        let (mut parts, mut end) = (Vec::new(), 0_u64);
        while !entry.is_empty() {
            let (extension, gap, size) = (text(entry)?, take_number(entry)?, take_number(entry)?);
            let begin = end.checked_add(gap)?;
            end = begin.checked_add(size)?;
            parts.push(Part { extension, begin, size });
        }
        Some(Self { key, header, twice, parts })
    }
}

/// Puts members together.
#[derive(Default)]
pub(super) struct Grouping {
    key: Vec<u8>,
    current: Option<Sample>,
    /// Hashes of the keys that were left, and where each stood.
    left: HashMap<u64, u64>,
}

/// A key that was left before: where it stood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Again(pub(super) u64);

impl Grouping {
    /// Begins or goes on with the sample of that key; the one before, if it is over.
    pub(in crate::dataset) fn enter(
        &mut self,
        key: &[u8],
        header: u64,
    ) -> Result<Option<Sample>, Again> {
        if self.current.is_some() && self.key == key {
            return Ok(None);
        }
        let over = self.end();
        if let Some(&before) = self.left.get(&xxh3_64(key)) {
            return Err(Again(before));
        }
        key.clone_into(&mut self.key);
        let key = String::from_utf8_lossy(key).into_owned();
        self.current = Some(Sample { key, header, twice: None, parts: Vec::new() });
        Ok(over)
    }

    /// Adds a member to the current sample; `false` if there are too many.
    pub(in crate::dataset) fn add(&mut self, part: Part) -> bool {
        let sample = self.current.as_mut().expect("a sample was entered before");
        if sample.parts.iter().any(|known| known.extension == part.extension) {
            sample.twice.get_or_insert_with(|| part.extension.clone());
        }
        sample.parts.push(part);
        sample.parts.len() <= MOST_MEMBERS
    }

    /// The last sample.
    pub(in crate::dataset) fn end(&mut self) -> Option<Sample> {
        let over = self.current.take()?;
        self.left.insert(xxh3_64(&self.key), over.header);
        Some(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = (String, u32, u32)> {
        ("[a-z.é]{0,5}", any::<u32>(), any::<u32>())
    }

    proptest! {
        #[test]
        fn a_sample_comes_back_from_its_entry(
            key in ".{0,9}",
            header in any::<u64>(),
            twice in prop::option::of("[a-z]{0,4}"),
            parts in prop::collection::vec(part(), 0..6),
        ) {
            let mut end = 0;
            let parts = parts.into_iter().map(|(extension, gap, size)| {
                let begin = end + u64::from(gap);
                end = begin + u64::from(size);
                Part { extension, begin, size: size.into() }
            });
            let sample = Sample { key, header, twice, parts: parts.collect() };
            prop_assert_eq!(Sample::from_bytes(&sample.to_bytes()), Some(sample));
        }

        #[test]
        fn no_entry_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            Sample::from_bytes(&bytes);
        }
    }

    /// Members as `key.extension` become samples as `key: extensions`.
    fn grouped(members: &[&str]) -> Result<Vec<String>, Again> {
        let mut grouping = Grouping::default();
        let mut samples = Vec::new();
        for (number, member) in members.iter().enumerate() {
            let (key, extension) = member.split_once('.').unwrap();
            samples.extend(grouping.enter(key.as_bytes(), number as u64)?);
            let begin = number as u64;
            assert!(grouping.add(Part { extension: extension.into(), begin, size: 1 }));
        }
        samples.extend(grouping.end());
        let shown = samples.iter().map(|sample| {
            let extensions = sample.parts.iter().map(|part| part.extension.as_str());
            let extensions = extensions.collect::<Vec<_>>().join(" ");
            let twice = sample.twice.as_deref().unwrap_or_default();
            format!("{}@{}: {extensions} {twice}", sample.key, sample.header)
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
