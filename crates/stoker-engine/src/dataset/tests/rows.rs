//! Rows are what a naive splitter finds, however the bytes come.

use std::io::{self, Read};

use proptest::prelude::*;

use super::super::scan::{Event, scan};
use super::{config, dataset, gzip, naive_rows, open, rows, zstd};

/// Gives bytes in pieces of the given sizes, again and again.
struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = (*self.sizes.next().unwrap()).min(buffer.len()).min(self.bytes.len());
        let (piece, rest) = self.bytes.split_at(size);
        buffer[..size].copy_from_slice(piece);
        self.bytes = rest;
        Ok(size)
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just("\n".to_owned()),
        2 => Just("\r\n".to_owned()),
        1 => Just("\r".to_owned()),
        2 => Just(" ".to_owned()),
        1 => Just("\t\u{c}".to_owned()),
        1 => Just("\0".to_owned()),
        1 => Just("\u{feff}".to_owned()),
        4 => "[a-z{}\" ]{1,9}",
        1 => (60_usize..200).prop_map(|length| "x".repeat(length)),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn a_scan_finds_what_a_naive_splitter_finds(
        text in text(),
        sizes in prop::collection::vec(1_usize..70, 1..5),
        max_line in 0_u64..100,
    ) {
        let mut found = Vec::new();
        let mut seen = Vec::new();
        let mut visit = |event: Event<'_>| {
            match event {
                Event::Bytes(bytes) => seen.extend_from_slice(bytes),
                Event::Row { offset, length, line } => {
                    found.push((offset, length, line, std::mem::take(&mut seen)));
                }
            }
            Ok(())
        };
        let start = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let mut reader = Pieces { bytes: &text[start..], sizes: sizes.iter().cycle() };
        let totals = scan(&mut reader, start as u64, max_line, &mut visit).unwrap();
        let expected = naive_rows(&text);
        prop_assert_eq!(totals.rows, expected.len() as u64);
        prop_assert_eq!(found.len(), expected.len());
        for ((offset, length, line, seen), (number, bytes)) in found.into_iter().zip(expected) {
            let range = offset as usize..(offset + length) as usize;
            prop_assert_eq!(&text[range], &bytes);
            prop_assert_eq!(line as usize + 1, number);
            if length <= max_line {
                prop_assert_eq!(seen, bytes);
            } else {
                prop_assert!(seen.len() as u64 <= max_line, "no more than the limit is kept");
            }
        }
    }

    #[test]
    fn rows_are_the_same_plain_and_compressed_in_any_number_of_members(
        body in text(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let text = [b"{\"first\": 1}\n".as_slice(), &body].concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let members = |pack: fn(&[u8]) -> Vec<u8>| -> Vec<u8> {
            cuts.windows(2).flat_map(|cut| pack(&text[cut[0]..cut[1]])).collect()
        };
        let expected = naive_rows(&text);
        let (plain, store, _folder) = dataset(text.clone());
        prop_assert_eq!(&rows(&plain, &store), &expected);
        for packed in [members(gzip), members(zstd)] {
            let (packed, store, _folder) = dataset(packed);
            prop_assert_eq!(&rows(&packed, &store), &expected);
            prop_assert_eq!(packed.fingerprint(), plain.fingerprint());
        }
    }
}

#[test]
fn the_fingerprint_is_of_the_rows_and_of_nothing_else() {
    let fingerprint = |bytes: &[u8]| dataset(bytes).0.fingerprint();
    let plain = fingerprint(b"{\"a\": 1}\n{\"b\": 2}\n");
    for same in [
        b"{\"a\": 1}\n{\"b\": 2}".to_vec(),
        b"\xef\xbb\xbf{\"a\": 1}\r\n\r\n   \n  {\"b\": 2}\r\n".to_vec(),
        gzip(b"{\"a\": 1}\n{\"b\": 2}\n"),
        zstd(b"{\"a\": 1}\n\n{\"b\": 2}\n"),
    ] {
        assert_eq!(fingerprint(&same), plain);
    }
    for other in [
        b"{\"a\": 1}\n{\"b\": 3}\n".as_slice(),
        b"{\"b\": 2}\n{\"a\": 1}\n",
        b"{\"a\": 1}{\"b\": 2}\n",
        b"{\"a\": 1}\n",
        b"{\"a\": 1}\n{\"b\": 2}\n{\"b\": 2}\n",
    ] {
        assert_ne!(fingerprint(other), plain);
    }
}

#[test]
fn a_line_over_the_limit_is_a_flaw_and_its_neighbours_are_fine() {
    let long = format!("{{\"long\": \"{}\"}}", "x".repeat(16 << 20));
    let text = format!("{{\"a\": 1}}\n\n{long}\n{{\"b\": 2}}\n");
    for bytes in [text.clone().into_bytes(), gzip(text.as_bytes()), zstd(text.as_bytes())] {
        let (data, _, _folder) = dataset(bytes);
        assert_eq!(data.rows(), 3);
        let flaw = data.locate(1).unwrap_err();
        assert_eq!(flaw.code, "too-long-line");
        assert!(flaw.to_string().contains(&format!("a line of {} bytes", long.len())), "{flaw}");
        assert_eq!(data.origin(1), "s3://bucket/data/train.jsonl:3");
        assert_eq!(data.locate(0).unwrap().range.unwrap().count(), 8);
        assert_eq!(data.locate(2).unwrap().range.unwrap().count(), 8);
    }
}

#[test]
fn the_limit_itself_is_allowed_and_can_be_raised() {
    let folder = tempfile::tempdir().unwrap();
    let store = super::Memory::new("{\"a\": 1}\n{\"bc\": 2}\n");
    let mut config = config(&folder);
    config.max_line = 8;
    let narrow = open(&config, &store).unwrap();
    assert!(narrow.locate(0).is_ok());
    assert_eq!(narrow.locate(1).unwrap_err().code, "too-long-line");
    config.max_line = 9;
    assert!(open(&config, &store).unwrap().locate(1).is_ok());
    assert!(narrow.locate(1).is_err(), "an open index does not change under a running job");
}

#[test]
fn a_row_beyond_the_last_is_a_flaw_and_no_panic() {
    let (data, _, _folder) = dataset("{}\n");
    for row in [1, u64::MAX / 16, u64::MAX] {
        assert_eq!(data.locate(row).unwrap_err().code, "index-unreadable");
        assert_eq!(data.origin(row), format!("s3://bucket/data/train.jsonl (row {row})"));
    }
}

#[test]
fn progress_ends_at_the_size_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let store = super::Memory::new(gzip("{\"a\": 1}\n".repeat(1000).as_bytes()));
    let mut seen = Vec::new();
    let progress = &mut |read, size| seen.push((read, size));
    super::Dataset::open_from(&config(&folder), &store, progress).unwrap();
    let size = store.bytes.len() as u64;
    assert_eq!(seen.last(), Some(&(size, size)));
    assert!(seen.is_sorted());
}
