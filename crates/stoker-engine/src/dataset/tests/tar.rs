//! WebDataset shards: no sample is lost in silence, whatever is wrong with an archive.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::super::entry::Entry;
use super::super::{Dataset, tar};

use super::{Bucket, config, gzip, open};
use crate::error::Result;
use crate::recipe::{self, Format};

pub(super) const URI: &str = "s3://bucket/x.tar";

pub(super) fn settings(folder: &TempDir) -> recipe::Dataset {
    let (source, format) = (vec![URI.to_owned()], Some(Format::WebDataset));
    recipe::Dataset { source, format, ..config(folder) }
}

pub(super) fn dataset(bytes: &[u8]) -> Result<(Dataset, Bucket, TempDir)> {
    let (folder, store) = (tempfile::tempdir().unwrap(), Bucket::new([("x.tar", bytes)]));
    Ok((open(&settings(&folder), &store)?, store, folder))
}

pub(super) fn entry(data: &Dataset, row: u64) -> Entry {
    Entry::from_bytes(&data.entry(0, row).unwrap()).unwrap()
}

/// Samples as `key: extensions`.
pub(super) fn layout(data: &Dataset) -> Vec<String> {
    let sample = |row| {
        let entry = entry(data, row);
        let extensions = entry.parts.iter().map(|part| part.name.as_str());
        format!("{}: {}", entry.key, extensions.collect::<Vec<_>>().join(" "))
    };
    (0..data.rows()).map(sample).collect()
}

/// An archive of these files.
pub(super) fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_entry_type(::tar::EntryType::Regular);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// What becomes of a file of the corpus.
enum Fate {
    /// As webdataset reads it.
    Same,
    /// These samples instead.
    Samples(&'static [&'static str]),
    /// As webdataset reads it, with this note.
    Noted(&'static str),
    /// This error.
    Error(&'static str),
}

const CUT_OFF: &str = "; the file is cut off: copy it again, or write it anew: ";
const ANEW: &str = "; write the archive anew: ";
const WHOLE: &[&str] =
    &["000000: jpg json", "000001: jpg json", "000002: jpg json", "000003: jpg json"];

fn fate(file: &str) -> Fate {
    match file {
        "no_eof_blocks.tar" => Fate::Noted("the archive has no end mark: it may be cut off"),
        "truncated_in_data.tar" => Fate::Error(
            "the member `000003.jpg` claims 4000 bytes, more than follow{CUT}{URI} at byte 16896",
        ),
        "truncated_in_header.tar" => {
            Fate::Error("the archive ends within a header, after 212 bytes{CUT}{URI} at byte 21504")
        }
        "corrupt_header_mid.tar" => {
            Fate::Error("a header is damaged: its checksum is no number{ANEW}{URI} at byte 11264")
        }
        "bad_checksum_mid.tar" => {
            Fate::Error("a header is damaged: its checksum is wrong{ANEW}{URI} at byte 11264")
        }
        "v7.tar" => Fate::Error("a header is damaged: its checksum is wrong{ANEW}{URI} at byte 0"),
        "huge_size_octal.tar" => Fate::Error(
            "the member `000000.jpg` claims 8589934591 bytes, more than follow{CUT}{URI} at byte 0",
        ),
        "huge_size_base256.tar" => Fate::Error(
            "the member `000000.jpg` claims 4611686018427387904 bytes, more than follow{CUT}{URI} at \
             byte 0",
        ),
        "negative_size_base256.tar" => Fate::Error(
            "a header is damaged: its size is negative or no number{ANEW}{URI} at byte 0",
        ),
        "noncontiguous.tar" => Fate::Error(
            "the members of sample `000000` don't stand together: it was at byte 0 before; write the \
             archive in the order of the names, as `tar --sort=name` does: {URI} at byte 9216",
        ),
        "gz_truncated.tar.gz" => Fate::Error(
            "the gzip data end in the middle; the file is cut off or damaged: copy it again, or \
             compress it again: {URI} at byte ",
        ),
        "empty.tar" | "only_zeros.tar" => Fate::Error("the source has no samples: "),
        // Read on behind the end marks, as far as there are members.
        "zero_blocks_mid.tar" | "gz_multistream.tar.gz" => Fate::Samples(WHOLE),
        "dup_member.tar" => Fate::Samples(&["000000: jpg json jpg", "000001: jpg json"]),
        "appledouble.tar" => Fate::Samples(&["d/000000: jpg json"]),
        _ => Fate::Same,
    }
}

#[test]
fn every_hazard_does_what_its_manifest_says() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/tar");
    let manifest = fs::read_to_string(corpus.join("manifest.jsonl")).unwrap();
    let cases: Vec<Value> =
        manifest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(cases.len(), 33);
    for case in cases {
        let file = case["file"].as_str().unwrap();
        let found = dataset(&fs::read(corpus.join(file)).unwrap());
        let fate = fate(file);
        if let Fate::Error(expected) = fate {
            let error = found.unwrap_err().to_string();
            let expected = expected.replace("{CUT}", CUT_OFF).replace("{ANEW}", ANEW);
            let expected = expected.replace("{URI}", URI);
            assert!(error.starts_with(&expected), "{file}: {error}");
            let right = case["right"].as_str().unwrap();
            let says = ["error", "fail", "0 samples", "reported"];
            assert!(says.iter().any(|word| right.contains(word)), "{file}: {right}");
            continue;
        }
        let (data, ..) = found.unwrap_or_else(|error| panic!("{file}: {error}"));
        let theirs = || -> Vec<String> {
            let samples: Vec<(String, Vec<String>)> =
                serde_json::from_value(case["wds"].clone()).unwrap();
            samples.into_iter().map(|(key, parts)| format!("{key}: {}", parts.join(" "))).collect()
        };
        let (expected, note) = match fate {
            Fate::Samples(samples) => (samples.iter().map(ToString::to_string).collect(), None),
            Fate::Noted(note) => (theirs(), Some(format!("{note}: {URI}"))),
            Fate::Same | Fate::Error(_) => (theirs(), None),
        };
        assert_eq!(layout(&data), expected, "{file}");
        assert_eq!(data.notes(), note.into_iter().collect::<Vec<_>>(), "{file}");
    }
}

#[test]
fn compressed_archives_that_are_too_large_for_the_disk_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let store = super::Memory { size: Some(70 << 30), ..super::Memory::new(gzip(&archive(&[]))) };
    let error = open(&settings(&folder), &store).unwrap_err().to_string();
    let expected = format!(
        "the shards are compressed with gzip, and all shards have 70.0 GiB together: up to 64.0 GiB \
         are copied to the disk; raise dataset.max-copied if there is room where the index lies, or \
         store the data as plain tar archives: {URI}"
    );
    assert_eq!(error, expected);
}

#[test]
fn what_is_no_archive_is_refused_with_a_word_on_what_it_is() {
    for (bytes, expected) in [
        (
            b"PAR1\x15\x04".as_slice(),
            "the source is a Parquet file, not a tar archive; name it *.parquet, or set \
             dataset.format = \"parquet\"",
        ),
        (
            b"{\"messages\": []}\n",
            "the source is JSON, not a tar archive; name it *.jsonl, or set dataset.format = \"jsonl\"",
        ),
        (b"PK\x03\x04", "the source is a zip archive, not a tar archive; unpack it"),
        (b"\xfd7zXZ\0", "the source is compressed with xz; use gzip, zstd or no compression"),
        (&[7; 2000], "a header is damaged: its checksum is no number; write the archive anew"),
        (&[7; 200], "the archive ends within a header, after 200 bytes; the file is cut off"),
    ] {
        let error = dataset(bytes).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// One sample of each kind of header that archives are written with.
fn variety() -> Vec<u8> {
    let long = format!("{}/000.jpg", "d".repeat(150));
    archive(&[("a.jpg", &[1; 700]), ("a.json", b"{}"), (&long, &[2; 512]), ("z.txt", b"")])
}

#[test]
fn an_archive_that_is_cut_anywhere_is_an_error_or_noted_and_never_short_of_a_member() {
    let whole = variety();
    let (data, ..) = dataset(&whole).unwrap();
    let rows = layout(&data);
    let near_blocks = (0..whole.len()).filter(|at| (at + 1) % 512 < 3 || at % 61 == 0);
    for length in near_blocks {
        let Ok((cut, ..)) = dataset(&whole[..length]) else { continue };
        let found = layout(&cut);
        // A sample that lost its last members to a cut between two of them is seen by the note.
        let ends = (0..cut.rows()).flat_map(|row| entry(&cut, row).parts).map(|part| part.end());
        assert!(ends.max().unwrap() <= length as u64, "{length}");
        assert!(found.len() <= rows.len() && found[..found.len() - 1] == rows[..found.len() - 1]);
        if found != rows {
            let note = format!("the archive has no end mark: it may be cut off: {URI}");
            assert_eq!(cut.notes(), [note], "{length}");
        }
    }
}

#[test]
fn a_flipped_bit_in_any_header_is_an_error() {
    let whole = variety();
    let (data, ..) = dataset(&whole).unwrap();
    let headers = [0, 1536, 2560, 3584, 4608];
    let kinds: Vec<u8> = headers.iter().map(|header| whole[header + 156]).collect();
    assert_eq!(kinds, b"00L00", "this is where the headers are");
    for at in headers.into_iter().flat_map(|header| header..header + 512) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        match dataset(&damaged) {
            Err(error) => {
                assert!(error.to_string().contains("a header is damaged"), "{at}: {error}");
            }
            // The checksum is the same with a blank in place of a leading zero.
            Ok((same, ..)) => {
                assert!((148..156).contains(&(at % 512)), "byte {at} was not missed");
                assert_eq!(layout(&same), layout(&data));
            }
        }
    }
}

/// `CVE-2025-62518`: one size in the pax records, another in the header, so that a reader that
/// believes each in turn finds headers in a member's content.
#[test]
fn a_size_in_pax_records_counts_everywhere() {
    let inner = archive(&[("evil.json", b"{\"messages\": []}")]);
    let mut builder = ::tar::Builder::new(Vec::new());
    let size = inner.len().to_string();
    builder.append_pax_extensions([("size", size.as_bytes())]).unwrap();
    let mut header = ::tar::Header::new_ustar();
    header.set_path("0.jpg").unwrap();
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, [].as_slice()).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(1536);
    bytes.extend(&inner);
    bytes.extend(archive(&[("1.txt", b"one")]));
    let (data, ..) = dataset(&bytes).unwrap();
    assert_eq!(layout(&data), ["0: jpg", "1: txt"]);
    assert_eq!(entry(&data, 0).parts[0].size, inner.len() as u64);
}

#[test]
fn sparse_files_and_names_without_a_member_are_refused() {
    let mut header = ::tar::Header::new_gnu();
    header.set_path("0.jpg").unwrap();
    header.set_size(0);
    header.set_entry_type(::tar::EntryType::GNUSparse);
    header.set_cksum();
    let error = dataset(header.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("a member is a sparse file, which is not read; "), "{error}");
    let mut builder = ::tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("GNU.sparse.major", b"1".as_slice())]).unwrap();
    let alone = builder.into_inner().unwrap();
    let error = dataset(&alone).unwrap_err().to_string();
    assert!(error.starts_with("a long name or pax header has no member; "), "{error}");
    let sparse = [&alone[..1024], &archive(&[("0.jpg", b"x")])].concat();
    let error = dataset(&sparse).unwrap_err().to_string();
    assert!(error.starts_with("a member is a sparse file"), "{error}");
}

#[test]
fn names_that_share_a_beginning_are_not_taken_for_one_huge_sample() {
    let names: Vec<String> = (0..4097).map(|number| format!("image.{number}")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let error = dataset(&archive(&members)).unwrap_err().to_string();
    assert!(
        error.starts_with("sample `image` has more than 4096 members, or a megabyte of names; "),
        "{error}"
    );
}

#[test]
fn the_fingerprint_is_of_names_sizes_and_text() {
    let of = |members: &[(&str, &[u8])]| dataset(&archive(members)).unwrap().0.fingerprint();
    let base = of(&[("0.jpg", b"JPG"), ("0.json", b"{}")]);
    assert_eq!(base, of(&[("0.jpg", b"GPJ"), ("0.json", b"{}")]), "images by their size alone");
    for other in [
        [("0.jpg", b"JPG".as_slice()), ("0.json", b"[]".as_slice())],
        [("0.jpg", b"JPGs"), ("0.json", b"{}")],
        [("0.png", b"JPG"), ("0.json", b"{}")],
        [("1.jpg", b"JPG"), ("1.json", b"{}")],
        [("0.json", b"{}"), ("0.jpg", b"JPG")],
    ] {
        assert_ne!(base, of(&other));
    }
    assert_eq!(tar::NO_END_MARK, 1, "the notes of indexes that exist");
}

proptest! {
    #[test]
    fn members_are_found_where_the_tar_crate_finds_them(
        members in prop::collection::btree_map("[a-z]{1,3}(/[a-zé]{1,60}){0,4}\\.[a-z]{1,4}", 0_usize..1500, 1..12),
        gnu in any::<bool>(),
    ) {
        let mut builder = ::tar::Builder::new(Vec::new());
        for (name, size) in &members {
            if gnu || name.len() <= 100 {
                let mut header = if gnu { ::tar::Header::new_gnu() } else { ::tar::Header::new_ustar() };
                header.set_size(*size as u64);
                builder.append_data(&mut header, name, vec![b'x'; *size].as_slice()).unwrap();
            } else {
                builder.append_pax_extensions([("path", name.as_bytes())]).unwrap();
                let mut header = ::tar::Header::new_ustar();
                header.set_path("cut").unwrap();
                header.set_size(*size as u64);
                header.set_cksum();
                builder.append(&header, vec![b'x'; *size].as_slice()).unwrap();
            }
        }
        let bytes = builder.into_inner().unwrap();
        let mut expected = BTreeMap::new();
        for entry in ::tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            let name = String::from_utf8(entry.path_bytes().to_vec()).unwrap();
            expected.insert(name, (entry.raw_file_position(), entry.size()));
        }
        let found = dataset(&bytes);
        // Names of one key that don't stand together are refused; the names here are sorted.
        let (data, ..) = match found {
            Ok(found) => found,
            Err(error) => {
                prop_assert!(error.to_string().contains("don't stand together"), "{error}");
                return Ok(());
            }
        };
        let mut seen = BTreeMap::new();
        for row in 0..data.rows() {
            let entry = entry(&data, row);
            for part in entry.parts {
                seen.insert(format!("{}.{}", entry.key, part.name), (part.begin, part.size));
            }
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn no_bytes_make_the_walker_panic(
        cuts in prop::collection::vec((0_usize..7000, any::<u8>()), 0..20),
        length in 0_usize..8000,
    ) {
        let mut bytes = variety();
        for (at, byte) in cuts {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(length);
        drop(dataset(&bytes));
    }
}
