//! Sizes and durations as people write them, and back.
//!
//! `KiB` is 1024 bytes and `KB` is 1000; a bare `K` or `M` is refused, because it is read both ways.
//! Durations are kept in whole milliseconds, so that what is written is what was read.

use std::time::Duration;

const BYTES: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const MILLIS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];

/// Bytes of a text such as `256MiB`.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    quantity(text, "B", &BYTES)
}

/// Duration of a text such as `250ms`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    quantity(text, "s", &MILLIS).map(Duration::from_millis)
}

/// Duration of a number of seconds, to the nearest millisecond.
pub(super) fn seconds(number: f64) -> Option<Duration> {
    whole(number * 1e3).map(Duration::from_millis)
}

/// A size in the largest binary unit that holds it exactly.
pub(super) fn write_size(bytes: u64) -> String {
    let units = BYTES[5..].iter().rev();
    let exact = units.copied().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    let (name, unit) = exact.unwrap_or(BYTES[0]);
    format!("{}{name}", bytes / unit)
}

/// A duration in seconds or milliseconds.
pub(super) fn write_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis.is_multiple_of(1000) { format!("{}s", millis / 1000) } else { format!("{millis}ms") }
}

/// A decimal number and a unit; `bare` is the unit of a number without one.
fn quantity(text: &str, bare: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let unit = if unit.is_empty() { bare } else { unit };
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(*factor),
        Err(_) => whole(number.parse::<f64>().ok()? * *factor as f64),
    }
}

/// The nearest whole number, if there is one that f64 and i64 both hold.
fn whole(number: f64) -> Option<u64> {
    (0.0..9e15).contains(&number).then(|| number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("256MiB", Some(256 << 20)),
            ("2GB", Some(2_000_000_000)),
            ("64 KiB", Some(64 << 10)),
            (" 1.5gib ", Some(3 << 29)),
            ("1tb", Some(1_000_000_000_000)),
            ("512", Some(512)),
            ("512 B", Some(512)),
            ("0B", Some(0)),
            ("64M", None),
            ("MiB", None),
            ("", None),
            ("-1MiB", None),
            ("1.2.3MiB", None),
            ("1e3MiB", None),
            ("99999999999TiB", None),
            ("99999999999.5TiB", None),
            ("5 µB", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [
            ("5s", Some(5_000)),
            ("250ms", Some(250)),
            ("0.25 s", Some(250)),
            ("2min", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("10", Some(10_000)),
            ("5 m", None),
            ("soon", None),
            ("-1s", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
        assert_eq!(seconds(0.25), Some(Duration::from_millis(250)));
        assert_eq!(seconds(-1.0), None);
        assert_eq!(seconds(f64::NAN), None);
        assert_eq!(seconds(f64::INFINITY), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for bytes in [0, 1, 1000, 1023, 1024, 1536, 16 << 20, 3 << 30, 1 << 40, i64::MAX as u64] {
            assert_eq!(parse_size(&write_size(bytes)), Some(bytes));
        }
        for millis in [0, 1, 999, 1000, 1001, 60_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&write_duration(duration)), Some(duration));
        }
        assert_eq!(write_size(16 << 20), "16MiB");
        assert_eq!(write_size(1_000_001), "1000001B");
        assert_eq!(write_duration(Duration::from_millis(1500)), "1500ms");
    }
}
