//! A row that is not a line: the parts of a sample and where each lies, as an entry of the index.
//!
//! The index knows all parts of a sample, whatever they are: which of them are read is up to the
//! recipe.

use super::entries::{put_bytes, put_number, take_bytes, take_number};

/// A part of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// What it is: the extension of a member in lower case (what is no UTF-8 is replaced), or the
    /// name of an image.
    pub(super) name: String,
    /// Where its content begins: in the shard, or in what was taken out of it.
    pub(super) begin: u64,
    pub(super) size: u64,
}

impl Part {
    pub(super) fn end(&self) -> u64 {
        self.begin + self.size
    }
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// What is no UTF-8 is replaced: it is for people.
    pub(super) key: String,
    /// Where it stands in the shard: the byte of its first header, or its row.
    pub(super) place: u64,
    /// A name that two members have.
    pub(super) twice: Option<String>,
    pub(super) parts: Vec<Part>,
}

impl Entry {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut entry = Vec::new();
        put_number(&mut entry, self.place);
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
            put_bytes(&mut entry, part.name.as_bytes());
            put_number(&mut entry, part.begin - end);
            put_number(&mut entry, part.size);
            end = part.end();
        }
        entry
    }

    pub(super) fn from_bytes(mut entry: &[u8]) -> Option<Self> {
        let entry = &mut entry;
        let text = |entry: &mut &[u8]| String::from_utf8(take_bytes(entry)?.to_vec()).ok();
        let (place, key) = (take_number(entry)?, text(entry)?);
        let twice = match take_number(entry)? {
            0 => None,
            1 => Some(text(entry)?),
            _ => return None,
        };
        let (mut parts, mut end) = (Vec::new(), 0_u64);
        while !entry.is_empty() {
            let (name, gap, size) = (text(entry)?, take_number(entry)?, take_number(entry)?);
            let begin = end.checked_add(gap)?;
            end = begin.checked_add(size)?;
            parts.push(Part { name, begin, size });
        }
        Some(Self { key, place, twice, parts })
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
            place in any::<u64>(),
            twice in prop::option::of("[a-z]{0,4}"),
            parts in prop::collection::vec(part(), 0..6),
        ) {
            let mut end = 0;
            let parts = parts.into_iter().map(|(name, gap, size)| {
                let begin = end + u64::from(gap);
                end = begin + u64::from(size);
                Part { name, begin, size: size.into() }
            });
            let sample = Entry { key, place, twice, parts: parts.collect() };
            prop_assert_eq!(Entry::from_bytes(&sample.to_bytes()), Some(sample));
        }

        #[test]
        fn no_entry_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            Entry::from_bytes(&bytes);
        }
    }
}
