//! What is wrong with a source as a whole, in words that say what to do.

use std::io;

use super::super::packing::Forward;
use super::super::{Dataset, Ranges, Store};
use super::{Bytewise, Memory, URI, config, dataset, gzip, open, refusal, rows, zstd};
use crate::error::{Error, FetchError, FetchErrorKind, Result};
use crate::fetch::ObjectInfo;
use crate::recipe;
use crate::sample::Location;

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_row() {
    for text in ["\u{feff}{\"a\": 1}\n{}\n", "\u{feff}\n{\"a\": 1}\n{}\n"] {
        for bytes in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
            let (data, store, _folder) = dataset(bytes);
            assert_eq!(rows(&data, &store)[0].1, b"{\"a\": 1}");
            assert_eq!(data.rows(), 2);
        }
    }
}

#[test]
fn what_is_not_json_lines_is_refused_with_a_word_on_what_it_is() {
    let mut tar = vec![b'x'; 600];
    tar[257..262].copy_from_slice(b"ustar");
    let utf16: Vec<u8> = "\u{feff}{}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: [(&[u8], &str); 13] = [
        (
            b"PAR1\x15\x04\x15",
            "the source is a Parquet file, not JSON lines; name it *.parquet, or set dataset.format = \"parquet\"",
        ),
        (
            b"ARROW1\0\0",
            "the source is an Arrow file, not JSON lines; write it as Parquet or as JSON lines",
        ),
        (
            &tar,
            "the source is a tar archive, not JSON lines; name it *.tar, or set dataset.format = \"webdataset\"",
        ),
        (
            &gzip(&tar),
            "the source is a tar archive, not JSON lines; name it *.tar, or set dataset.format = \"webdataset\"",
        ),
        (b"PK\x03\x04....", "the source is a zip archive, not JSON lines; unpack it"),
        (b"BZh91AY", "the source is compressed with bzip2; use gzip, zstd or no compression"),
        (b"\xfd7zXZ\0", "the source is compressed with xz; use gzip, zstd or no compression"),
        (&utf16, "the source is UTF-16 or UTF-32 text; write it in UTF-8"),
        (&utf16[2..], "the source is UTF-16 or UTF-32 text; write it in UTF-8"),
        (
            b"[{}, {}]",
            "the source is one JSON array, not JSON lines; write one object per line, as `jq -c '.[]'` does",
        ),
        (
            b"\xef\xbb\xbf \n [\n{}]",
            "the source is one JSON array, not JSON lines; write one object per line, as `jq -c '.[]'` does",
        ),
        (
            &zstd(b"[{}]"),
            "the source is one JSON array, not JSON lines; write one object per line, as `jq -c '.[]'` does",
        ),
        (&gzip(&gzip(b"{}\n")), "the source is compressed twice; unpack it once"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(refusal(bytes), format!("{expected}: {URI}"));
    }
}

#[test]
fn a_source_without_samples_is_refused() {
    let expected = format!(
        "the source has no samples: it is empty or holds blank lines alone; \
         check dataset.source: {URI}"
    );
    for bytes in [b"".to_vec(), b"\n \r\n\t\n".to_vec(), b"\xef\xbb\xbf".to_vec(), gzip(b"")] {
        assert_eq!(refusal(bytes), expected);
    }
}

#[test]
fn compressed_data_that_end_early_say_in_which_line() {
    let text = super::numbered(2000);
    let (first, second) = text.split_at(text.find("{\"row\": 1000}").unwrap());
    for (name, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        let (first, second) = (pack(first.as_bytes()), pack(second.as_bytes()));
        let whole = [first.as_slice(), &second].concat();
        for cut in [whole.len() - 1, whole.len() - 9, first.len() + second.len() / 2] {
            let error = refusal(&whole[..cut]);
            let (reason, place) = error.split_once("again, or compress it again: ").unwrap();
            assert!(reason.starts_with(&format!("the {name} data end in the middle; ")), "{error}");
            let line: u64 = place.strip_prefix(URI).unwrap()[1..].parse().unwrap();
            assert!((1001..=2001).contains(&line), "the first member was read: {error}");
        }
        let error = refusal(&whole[..5]);
        assert!(error.starts_with(&format!("the {name} data ")), "{error}");
    }
}

#[test]
fn compressed_data_that_are_damaged_are_refused() {
    let text = super::numbered(2000);
    let mut flipped = gzip(text.as_bytes());
    let end = flipped.len() - 6;
    flipped[end] ^= 1;
    let trailing = [gzip(text.as_bytes()), vec![b'x'; 40]].concat();
    for bytes in [flipped, trailing] {
        let error = refusal(bytes);
        assert!(error.starts_with("the gzip data are damaged: "), "{error}");
    }
    let trailing = [zstd(text.as_bytes()), vec![b'x'; 40]].concat();
    let error = refusal(trailing);
    assert!(error.starts_with("the zstd data are damaged: "), "{error}");
}

#[test]
fn zstd_that_begins_with_a_skippable_frame_is_known_by_its_magic() {
    let skippable = [b"\x50\x2a\x4d\x18\x04\0\0\0skip".as_slice(), &zstd(b"{}\n{}\n")].concat();
    assert_eq!(dataset(skippable).0.rows(), 2);
}

#[test]
fn a_source_that_changes_while_it_is_read_is_refused() {
    let expected = format!(
        "the source changed while it was read; \
         wait until the source is complete, then start again: {URI}"
    );
    let changed = Memory { changes: true, ..Memory::new("{}\n") };
    let short = Memory { size: Some(9), ..Memory::new("{}\n") };
    let long = Memory { size: Some(2), ..Memory::new("{}\n{}\n") };
    for store in [changed, short, long] {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(open(&config(&folder), &store).unwrap_err().to_string(), expected);
        assert_eq!(super::files(&folder), [""; 0]);
    }
}

#[test]
fn nul_bytes_are_found_in_their_line_and_no_other() {
    let (data, store, _folder) = dataset(b"{\"a\": 1}\n\0\0\0\0\n{\"b\": 2}\n".to_vec());
    assert_eq!(rows(&data, &store)[1], (2, vec![0; 4]));
    let flaw = super::parse(vec![0; 4]).unwrap_err();
    assert_eq!(flaw.code, "not-json");
    assert!(flaw.to_string().contains("a crash or a full disk"), "{flaw}");
}

/// A store whose reads fail with what `error` makes.
struct Failing(fn() -> io::Error);

impl Store for Failing {
    fn stat(&self, _: &Location) -> Result<ObjectInfo> {
        Ok(ObjectInfo { size: 10, version: None })
    }

    fn list(&self, _: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        panic!("one object is not listed")
    }

    fn reader(&self, _: &std::sync::Arc<Location>) -> Result<Box<dyn Forward + Send>> {
        struct Broken(fn() -> io::Error);
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(self.0())
            }
        }
        let bytes = io::Cursor::new(b"{}\n".repeat(400));
        Ok(Box::new(Bytewise(io::Read::chain(bytes, Broken(self.0)))))
    }

    fn ranges(&self, _: &std::sync::Arc<Location>) -> Ranges {
        panic!("lines are read from front to back")
    }
}

#[test]
fn an_error_of_the_store_is_passed_on_as_it_is() {
    fn denied() -> Error {
        Error::Fetch(Box::new(FetchError {
            kind: FetchErrorKind::Denied,
            range: None,
            attempts: 1,
            status: Some(403),
            reason: "refused".to_owned(),
            hint: None,
            request_id: None,
            uri: URI.to_owned(),
        }))
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |store: Failing| Dataset::open_from(&config(&folder), &store, &mut |_, _| {});
    assert_eq!(open(Failing(|| io::Error::other(denied()))).unwrap_err(), denied());
    let error = open(Failing(|| io::Error::from_raw_os_error(5))).unwrap_err().to_string();
    assert!(error.starts_with("the source can't be read: "), "{error}");
    assert!(error.ends_with(&format!("{URI}:401")), "{error}");
}

#[test]
fn an_address_that_the_recipe_got_wrong_names_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let open = |config| open(&config, &Memory::new("{}\n")).unwrap_err().to_string();
    let source = vec!["ftp://host/a.jsonl".to_owned()];
    let error = open(recipe::Dataset { source, ..config(&folder) });
    assert!(error.contains("dataset.source: addresses of kind `ftp` are not read"), "{error}");
    let media_root = Some("s3://user:pass@bucket/x".to_owned());
    let error = open(recipe::Dataset { media_root, ..config(&folder) });
    assert!(error.contains("dataset.media-root: an address holds a user name"), "{error}");
    assert!(!error.contains("pass@"), "no credential in an error: {error}");
}

#[test]
fn no_signature_of_a_url_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let source = vec!["https://host.example/a.jsonl?X-Amz-Signature=secret".to_owned()];
    let config = recipe::Dataset { source, ..config(&folder) };
    let data = open(&config, &Memory::new("{}\n")).unwrap();
    assert_eq!(data.origin(0), "https://host.example/a.jsonl?…:1");
    let error = open(&config, &Memory { version: 1, ..Memory::new("") }).unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}
