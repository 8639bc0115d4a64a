//! A row that is not a line: which stretch of bytes to read for it, and what the stretch says.
//!
//! Text and images of a sample lie side by side, so one request brings all of it. Where that would
//! bring much that nobody wants, or more than a request should, only the text is read by it, and
//! each image by a request of its own, under the rules for images that are stored by themselves.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::chat::{Object, Record, has_videos, text, value};
use super::content::Carried;
use super::entry::{Entry, Part};
use super::mds::{self, Columns, Role};
use super::tar::names;
use super::{flaw, quoted};
use crate::error::Flaw;
use crate::recipe::Fields;
use crate::sample::{Extent, ImageRef, Location};

/// Longest stretch that is read at once: S3's advice for one request is 8 to 16 MiB.
const STRETCH: u64 = 8 << 20;
/// Bytes that nobody wants and that are read rather than asked around.
const WASTE: u64 = 256 << 10;
/// Members that are captions where there are no messages.
const CAPTIONS: [&str; 2] = ["txt", "caption"];
const VIDEOS: [&str; 5] = ["mp4", "webm", "avi", "mov", "mkv"];

/// How the parts of a row are told apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rules<'a> {
    /// Members of an archive, by their names.
    Members(&'a Fields),
    /// A row of a table: its record, and behind it its images.
    Row,
    /// Columns, as another file describes them.
    Columns(&'a Columns),
}

/// What of a sample is read.
struct Reading<'a> {
    json: Option<&'a Part>,
    texts: Vec<&'a Part>,
    images: Vec<&'a Part>,
    stretch: Range<u64>,
    /// Whether the images lie in the stretch.
    whole: bool,
}

/// The stretch of bytes to read for an entry.
pub(super) fn locate(entry: &[u8], rules: Rules<'_>, max_text: u64) -> Result<Range<u64>, Flaw> {
    let sample = decoded(entry)?;
    let reading = Reading::of(&sample, rules)?;
    let long = reading.json.iter().chain(&reading.texts).find(|part| part.size > max_text);
    if let Some(Part { name, size, .. }) = long {
        // Of a row only as much was taken out as it takes for this.
        let least = if matches!(rules, Rules::Row) { "at least " } else { "" };
        let (what, name) = (rules.noun(), quoted(name));
        let reason =
            format!("{what} {name} of {least}{size} bytes is longer than the limit of {max_text}");
        return Err(flaw("too-long-line", reason).hint("raise dataset.max-line"));
    }
    Ok(reading.stretch)
}

/// What the stretch says; `object` is what it was read from.
pub(super) fn record(
    entry: &[u8],
    bytes: &Bytes,
    object: &Arc<Location>,
    rules: Rules<'_>,
) -> Result<Record, Flaw> {
    let sample = decoded(entry)?;
    let reading = Reading::of(&sample, rules)?;
    let content = |part: &Part| {
        let begin = part.begin.checked_sub(reading.stretch.start);
        let range = begin.map(|begin| begin as usize..(begin + part.size) as usize);
        let inside = range.filter(|range| range.end <= bytes.len());
        inside.map(|range| bytes.slice(range)).ok_or_else(unreadable)
    };
    let carried = reading.images.iter().map(|part| {
        let image = if reading.whole {
            ImageRef::Inline(content(part)?)
        } else {
            let range = Some(part.begin..part.end());
            ImageRef::Stored(Extent { object: Arc::clone(object), range })
        };
        let names = match rules {
            Rules::Members(_) => {
                vec![part.name.clone(), format!("{}.{}", sample.key, part.name)]
            }
            Rules::Row => vec![part.name.clone()],
            Rules::Columns(_) => Vec::new(),
        };
        Ok((rules.order(&part.name), Carried { names, image }))
    });
    let mut carried = carried.collect::<Result<Vec<_>, Flaw>>()?;
    let mut record = Object::new();
    if let Some(json) = reading.json {
        let (name, what) = (&json.name, format!("{} {}", rules.noun(), quoted(&json.name)));
        record = match value(&content(json)?, &what)? {
            Value::Object(record) => record,
            // A list is the messages, if they are looked for under this name.
            list @ Value::Array(_) if rules.messages() == Some(name) => {
                Object::from_iter([(name.clone(), list)])
            }
            _ => return Err(flaw("not-an-object", format!("{what} is JSON, but not an object"))),
        };
    }
    for part in &reading.texts {
        let bytes = content(part)?;
        if let Rules::Columns(columns) = rules {
            let column = columns.named(&part.name).ok_or_else(unreadable)?;
            if let Role::Images(before) = column.role {
                let images = mds::images(&bytes, before)?.into_iter().map(ImageRef::Inline);
                let carried_of = |image| (column.order, Carried { names: Vec::new(), image });
                carried.extend(images.map(carried_of));
            } else {
                record.insert(part.name.clone(), mds::value(column, &bytes)?);
            }
        } else {
            let what = format!("{} {}", rules.noun(), quoted(&part.name));
            record.insert(part.name.clone(), text(&bytes, &what)?.into());
        }
    }
    let captions = match rules {
        Rules::Members(_) => &CAPTIONS[..],
        Rules::Row | Rules::Columns(_) => &[],
    };
    carried.sort_by_key(|(order, _)| *order);
    let carried = carried.into_iter().map(|(_, carried)| carried).collect();
    Ok(Record { object: record, carried, captions })
}

/// Where a sample stands, for people.
pub(super) fn origin(entry: &[u8], uri: &str, rules: Rules<'_>) -> String {
    match (Entry::from_bytes(entry), rules) {
        (Some(Entry { key, place, .. }), Rules::Members(_)) => {
            format!("{uri}, sample {} at byte {place}", quoted(&key))
        }
        (Some(Entry { place, .. }), Rules::Row | Rules::Columns(_)) => {
            format!("{uri}, row {place}")
        }
        (None, _) => uri.to_owned(),
    }
}

impl Rules<'_> {
    fn noun(self) -> &'static str {
        match self {
            Self::Members(_) => "the member",
            Self::Row => "the part",
            Self::Columns(_) => "the column",
        }
    }

    /// Where the images of a part come among all images; those of members are in order already.
    fn order(&self, part: &str) -> usize {
        match self {
            Self::Columns(columns) => columns.named(part).map_or(0, |column| column.order),
            Self::Members(_) | Self::Row => 0,
        }
    }

    /// The name that messages are looked for under, if the recipe has one.
    fn messages(&self) -> Option<&String> {
        match self {
            Self::Members(fields) => fields.messages.as_ref(),
            Self::Row | Self::Columns(_) => None,
        }
    }
}

fn decoded(entry: &[u8]) -> Result<Entry, Flaw> {
    Entry::from_bytes(entry).ok_or_else(unreadable)
}

fn unreadable() -> Flaw {
    flaw("index-unreadable", "the index says nothing sensible of the sample")
        .hint("delete the shard's index, so that it is built anew")
}

impl<'a> Reading<'a> {
    fn of(sample: &'a Entry, rules: Rules<'_>) -> Result<Self, Flaw> {
        match rules {
            Rules::Members(fields) => Self::of_members(sample, fields),
            Rules::Row => {
                let (json, images) = sample.parts.split_first().ok_or_else(unreadable)?;
                Self::planned(Some(json), Vec::new(), images.iter().collect())
            }
            Rules::Columns(columns) => {
                let is_image = |part: &&Part| {
                    columns.named(&part.name).is_some_and(|column| column.role == Role::Image)
                };
                let (images, texts) = sample.parts.iter().partition(is_image);
                Self::planned(None, texts, images)
            }
        }
    }

    fn of_members(sample: &'a Entry, fields: &Fields) -> Result<Self, Flaw> {
        if let Some(extension) = &sample.twice {
            let reason = format!("two members of the sample are named {}", quoted(extension));
            return Err(flaw("duplicate-member", reason)
                .hint("write each member once, and give each sample a key of its own"));
        }
        if sample.parts.iter().any(|part| VIDEOS.contains(&part.name.as_str())) {
            return Err(has_videos());
        }
        let json = json(sample, fields);
        let is_text = |part: &&Part| {
            let name = Some(&part.name);
            let named = [&fields.question, &fields.answer].iter().any(|it| it.as_ref() == name);
            (named || CAPTIONS.contains(&part.name.as_str())) && Some(*part) != json
        };
        let texts: Vec<&Part> = sample.parts.iter().filter(is_text).collect();
        if json.is_none() && texts.is_empty() {
            let found: Vec<&str> =
                sample.parts.iter().map(|part| part.name.as_str()).take(12).collect();
            let reason = format!(
                "the sample has no json, txt or caption; its members are {}",
                quoted(&found.join(", "))
            );
            return Err(flaw("missing-member", reason)
                .hint("dataset.fields says which members are read under other names"));
        }
        Self::planned(json, texts, images(sample, fields))
    }

    fn planned(
        json: Option<&'a Part>,
        texts: Vec<&'a Part>,
        images: Vec<&'a Part>,
    ) -> Result<Self, Flaw> {
        let written = json.iter().chain(&texts).copied();
        let all = written.clone().chain(images.iter().copied());
        let size =
            |parts: &mut dyn Iterator<Item = &Part>| parts.map(|part| part.size).sum::<u64>();
        let wanted = size(&mut all.clone());
        let (words, all) = (span(written.clone()), span(all));
        let length = all.end - all.start;
        let whole = length <= STRETCH && length - wanted.min(length) <= wanted.max(WASTE);
        let stretch = if whole { all } else { words };
        if stretch.end - stretch.start > STRETCH.max(2 * size(&mut written.clone())) {
            let reason = "the texts of the sample lie far apart";
            return Err(flaw("scattered", reason).hint("write them side by side"));
        }
        Ok(Self { json, texts, images, stretch, whole })
    }
}

/// The member that holds the record: by the name that messages are looked for under, by the usual
/// name, or the only one.
fn json<'a>(sample: &'a Entry, fields: &Fields) -> Option<&'a Part> {
    let named = |name: &str| sample.parts.iter().find(|part| part.name == name);
    let mut all = sample.parts.iter().filter(|part| names::is_json(&part.name));
    let only = all.next().filter(|_| all.next().is_none());
    fields.messages.as_deref().and_then(named).or_else(|| named("json")).or(only)
}

/// The members that are images: those that the recipe names, in its order; or else all that are
/// named as images, with numbers in their names counted as numbers.
fn images<'a>(sample: &'a Entry, fields: &Fields) -> Vec<&'a Part> {
    let named = |name: &String| sample.parts.iter().find(|part| part.name == *name);
    let chosen = fields.images.iter().flatten().filter_map(named).collect::<Vec<_>>();
    if !chosen.is_empty() {
        return chosen;
    }
    let mut images: Vec<&Part> =
        sample.parts.iter().filter(|part| names::is_image(&part.name)).collect();
    images.sort_by(|a, b| by_numbers(&a.name, &b.name));
    images
}

/// The order of people: `2.jpg` before `10.jpg`.
fn by_numbers(a: &str, b: &str) -> Ordering {
    let pieces = |text: &str| {
        let mut pieces: Vec<(u64, String)> = vec![(0, String::new())];
        for letter in text.chars() {
            let (number, rest) = pieces.last_mut().expect("there is always one");
            match letter.to_digit(10) {
                Some(digit) if rest.is_empty() => {
                    *number = number.saturating_mul(10).saturating_add(digit.into());
                }
                Some(digit) => pieces.push((digit.into(), String::new())),
                None => rest.push(letter),
            }
        }
        pieces
    };
    pieces(a).cmp(&pieces(b)).then_with(|| a.cmp(b))
}

/// From the first byte of any to the last.
fn span<'a>(parts: impl Iterator<Item = &'a Part>) -> Range<u64> {
    parts
        .map(|part| part.begin..part.end())
        .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        .unwrap_or(0..0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["10.jpg", "2.jpg", "img10.png", "img9.png", "jpg", "02.jpg", "b2a1.jpg"];
        names.sort_by(|a, b| by_numbers(a, b));
        let expected = ["b2a1.jpg", "img9.png", "img10.png", "jpg", "02.jpg", "2.jpg", "10.jpg"];
        assert_eq!(names, expected);
    }

    fn sample(parts: &[(&str, u64, u64)]) -> Vec<u8> {
        let parts = parts.iter().map(|(name, begin, size)| Part {
            name: (*name).to_owned(),
            begin: *begin,
            size: *size,
        });
        let parts = parts.collect();
        Entry { key: "k".into(), place: 0, twice: None, parts }.to_bytes()
    }

    #[test]
    fn one_stretch_holds_all_of_a_sample_unless_it_would_hold_too_much() {
        let fields = Fields::default();
        let rules = Rules::Members(&fields);
        let stretch = |parts: &[(&str, u64, u64)]| locate(&sample(parts), rules, 1000).unwrap();
        let mib = 1 << 20;
        assert_eq!(stretch(&[("jpg", 512, 900), ("json", 2048, 10)]), 512..2058);
        assert_eq!(stretch(&[("json", 512, 10), ("jpg", 2048, 9 * mib)]), 512..522, "too long");
        let far = [("jpg", 512, 900), ("npy", 2048, 3 * mib), ("json", 4 * mib, 10)];
        assert_eq!(stretch(&far), 4 * mib..4 * mib + 10, "mostly what nobody wants");
        assert_eq!(stretch(&[("json", 512, 10), ("npy", 2048, 5)]), 512..522, "text alone");
        let long = locate(&sample(&[("json", 0, 1001)]), rules, 1000).unwrap_err();
        assert_eq!(long.code, "too-long-line");
        let apart = [("json", 0, 10), ("jpg", 512, 90 * mib), ("txt", 95 * mib, 10)];
        assert_eq!(locate(&sample(&apart[..2]), rules, 1000).unwrap(), 0..10);
        let huge = [("json", 0, 10), ("npy", 512, 90 * mib), ("txt", 95 * mib, 10)];
        assert_eq!(locate(&sample(&huge), rules, 1000).unwrap_err().code, "scattered");
    }
}
