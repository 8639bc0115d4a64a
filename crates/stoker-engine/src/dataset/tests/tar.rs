//! WebDataset shards: no sample is lost in silence, whatever is wrong with an archive.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::entry::Entry;
use super::super::{Dataset, tar};
use super::forms::short;
use super::{Bucket, config, files, gzip, open, zstd};
use crate::error::{Flaw, Result};
use crate::recipe::{self, Fields, Format};
use crate::sample::{ImageRef, Sample};

const URI: &str = "s3://bucket/x.tar";

fn settings(folder: &TempDir) -> recipe::Dataset {
    let (source, format) = (vec![URI.to_owned()], Some(Format::WebDataset));
    recipe::Dataset { source, format, ..config(folder) }
}

fn dataset(bytes: &[u8]) -> Result<(Dataset, Bucket, TempDir)> {
    let (folder, store) = (tempfile::tempdir().unwrap(), Bucket::new([("x.tar", bytes)]));
    Ok((open(&settings(&folder), &store)?, store, folder))
}

fn entry(data: &Dataset, row: u64) -> Entry {
    Entry::from_bytes(&data.entry(0, row).unwrap()).unwrap()
}

/// Samples as `key: extensions`.
fn layout(data: &Dataset) -> Vec<String> {
    let sample = |row| {
        let entry = entry(data, row);
        let extensions = entry.parts.iter().map(|part| part.name.as_str());
        format!("{}: {}", entry.key, extensions.collect::<Vec<_>>().join(" "))
    };
    (0..data.rows()).map(sample).collect()
}

/// An archive of these files.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
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

/// A chat that mentions an image.
fn chat(answer: &str) -> Vec<u8> {
    json!({"messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": answer}]})
    .to_string()
    .into_bytes()
}

fn parsed(fields: Fields, members: &[(&str, &[u8])]) -> Vec<Result<Sample, Flaw>> {
    let folder = tempfile::tempdir().unwrap();
    let store = Bucket::new([("x.tar", archive(members))]);
    let data = open(&recipe::Dataset { fields, ..settings(&folder) }, &store).unwrap();
    (0..data.rows()).map(|row| store.sample(&data, row)).collect()
}

/// What the one sample says that these members are, or the code of its flaw.
fn meaning_with(fields: Fields, members: &[(&str, &[u8])]) -> String {
    let mut samples = parsed(fields, members);
    assert_eq!(samples.len(), 1);
    samples.pop().unwrap().map_or_else(|flaw| flaw.code.to_owned(), |sample| short(&sample))
}

fn meaning(members: &[(&str, &[u8])]) -> String {
    meaning_with(Fields::default(), members)
}

#[test]
fn a_sample_is_its_json_with_its_images() {
    let chat = chat("A cup.");
    let expected = "user: [JPG]|What? / assistant= A cup.";
    assert_eq!(meaning(&[("0.jpg", b"JPG"), ("0.json", &chat)]), expected);
    assert_eq!(meaning(&[("0.json", &chat), ("0.cls", b"7"), ("0.PNG", b"JPG")]), expected);
    let text = br#"{"messages": [{"role": "user", "content": "x"}]}"#;
    assert_eq!(meaning(&[("0.json", text)]), "user= x", "a sample of text alone");
    assert_eq!(meaning(&[("0.json", &chat)]), "image-count", "an image is missing");
}

#[test]
fn captions_are_answers_without_a_question() {
    for name in ["0.txt", "0.caption"] {
        let expected = "user: [JPG] / assistant= A cup.\n";
        assert_eq!(meaning(&[("0.jpg", b"JPG"), (name, b"A cup.\n")]), expected);
        let with_metadata: [(&str, &[u8]); 3] =
            [("0.jpg", b"JPG"), ("0.json", br#"{"width": 3, "url": "x"}"#), (name, b"A cup.\n")];
        assert_eq!(meaning(&with_metadata), expected);
        assert_eq!(meaning(&[(name, b"A cup.")]), "missing-image");
        assert_eq!(meaning(&[("0.jpg", b"JPG"), (name, b"")]), "no-conversation");
        assert_eq!(meaning(&[("0.jpg", b"JPG"), (name, b"\xff")]), "invalid-utf8");
    }
    let in_json = [("0.jpg", b"JPG".as_slice()), ("0.json", br#"{"caption": "A cup."}"#)];
    assert_eq!(meaning(&in_json), "user: [JPG] / assistant= A cup.");
}

/// A chat whose images are these references.
fn listing(images: Value) -> Vec<u8> {
    let marks = "<image>".repeat(images.as_array().map_or(1, Vec::len));
    let turns = [json!({"from": "human", "value": marks}), json!({"from": "gpt", "value": "A"})];
    json!({"conversations": turns, "image": images}).to_string().into_bytes()
}

#[test]
fn references_name_members_or_stand_for_them_in_order() {
    let one = [("k.jpg", b"A".as_slice())];
    let ten: Vec<(String, Vec<u8>)> =
        (0..11).map(|number| (format!("k.{number}.jpg"), format!("{number}").into())).collect();
    let mut ten: Vec<(&str, &[u8])> =
        ten.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    ten.sort_unstable();
    let images = |members: &[(&str, &[u8])], images: Value| {
        let json = listing(images);
        let mut members = members.to_vec();
        members.push(("k.json", &json));
        let found = meaning(&members);
        let asked = found.strip_prefix("user: ").and_then(|it| it.strip_suffix(" / assistant= A"));
        asked.unwrap_or(&found).to_owned()
    };
    for reference in ["k.jpg", "jpg", "K.JPG", "coco/train/0001.jpg", "s3://elsewhere/k2.png"] {
        assert_eq!(images(&one, json!(reference)), "[A]", "{reference}");
    }
    assert_eq!(images(&one, json!(["a.jpg", "b.jpg"])), "image-count");
    assert_eq!(images(&ten, json!(["10.jpg", "k.2.jpg"])), "[10]|[2]", "by name, some of them");
    let all: Vec<String> = (0..11).map(|number| format!("images/{number:09}.png")).collect();
    assert_eq!(
        images(&ten, json!(all)),
        "[0]|[1]|[2]|[3]|[4]|[5]|[6]|[7]|[8]|[9]|[10]",
        "by place, all of them"
    );
    assert_eq!(images(&ten, json!(["x.jpg"])), "image-count");
    assert_eq!(images(&ten, json!(["0.jpg", "x.jpg"])), "bad-image", "by name, then not");
    assert_eq!(images(&ten, json!(["0.jpg", "0.jpg"])), "bad-image", "the same twice");
}

#[test]
fn parts_of_messages_name_members_too() {
    let messages = |first: &str, second: &str| {
        let part = |image: &str| json!({"type": "image", "image": image});
        let content = json!([part(first), {"type": "text", "text": "or"}, part(second)]);
        json!({"messages": [{"role": "user", "content": content}]}).to_string().into_bytes()
    };
    let images: [(&str, &[u8]); 2] = [("k.left.jpg", b"L"), ("k.right.jpg", b"R")];
    let of = |json: &[u8]| meaning(&[images[0], images[1], ("k.json", json)]);
    assert_eq!(of(&messages("right.jpg", "left.jpg")), "user: [R]|or|[L]");
    assert_eq!(of(&messages("a/1.png", "a/2.png")), "user: [L]|or|[R]");
    assert_eq!(of(&messages("right.jpg", "a/2.png")), "bad-image");
    let one = json!({"messages": [{"role": "user", "content": [{"type": "image", "image": "x"}]}]});
    assert_eq!(of(one.to_string().as_bytes()), "image-count", "no image is left out in silence");
}

#[test]
fn fields_choose_members_by_extension() {
    let text = |name: &str| Some(name.to_owned());
    let fields = |messages, question, answer, images: &[&str]| Fields {
        messages,
        question,
        answer,
        images: (!images.is_empty()).then(|| images.iter().map(ToString::to_string).collect()),
    };
    let list = br#"[{"role": "user", "content": "<image><image>"}]"#;
    let members: [(&str, &[u8]); 5] = [
        ("k.a.jpg", b"A"),
        ("k.b.jpg", b"B"),
        ("k.chat.json", list),
        ("k.json", b"{\"q\": \"Who?\"}"),
        ("k.label", b"me"),
    ];
    let chosen = fields(text("chat.json"), None, None, &["b.jpg", "a.jpg"]);
    assert_eq!(meaning_with(chosen, &members), "user: [B]|[A]");
    let asked = fields(None, text("q"), text("label"), &["b.jpg"]);
    assert_eq!(meaning_with(asked, &members), "user: [B]|Who? / assistant= me");
    let caption = fields(None, None, text("label"), &[]);
    assert_eq!(meaning_with(caption, &members), "user: [A]|[B] / assistant= me");
    let absent = fields(text("talk"), None, None, &[]);
    assert_eq!(meaning_with(absent, &members), "no-conversation");
}

#[test]
fn a_sample_that_lacks_or_repeats_a_member_is_a_flaw_and_its_neighbours_are_fine() {
    let chat = chat("A");
    let members: [(&str, &[u8]); 8] = [
        ("0.jpg", b"JPG"),
        ("1.jpg", b"JPG"),
        ("1.json", &chat),
        ("2.json", b"{\"messages\": NaN}"),
        ("3.jpg", b"JPG"),
        ("3.jpg", b"JPG"),
        ("4.mp4", b"MP4"),
        ("4.json", &chat),
    ];
    let samples = parsed(Fields::default(), &members);
    let codes = samples.iter().map(|sample| sample.as_ref().map_or_else(|flaw| flaw.code, |_| ""));
    let expected = ["missing-member", "", "not-json", "duplicate-member", "unsupported"];
    assert_eq!(codes.collect::<Vec<_>>(), expected);
    let lacking = samples[0].as_ref().unwrap_err().to_string();
    assert!(lacking.contains("has no json, txt or caption; its members are `jpg`"), "{lacking}");
}

#[test]
fn large_images_are_read_by_themselves() {
    let (chat, large) = (chat("A"), vec![b'x'; 9 << 20]);
    let samples = parsed(Fields::default(), &[("0.jpg", &large), ("0.json", &chat)]);
    let sample = samples[0].as_ref().unwrap();
    let [ImageRef::Stored(extent)] = sample.images.as_slice() else { panic!("{sample:?}") };
    assert_eq!(
        (extent.object.to_string().as_str(), extent.range.clone()),
        (URI, Some(512..512 + (9 << 20)))
    );
}

#[test]
fn a_compressed_archive_is_the_same_dataset_taken_out_once() {
    let chat = chat("A");
    let members: [(&str, &[u8]); 4] =
        [("0.jpg", b"JPG0"), ("0.json", &chat), ("d/1.png", b"PNG1"), ("d/1.txt", b"one")];
    let plain = archive(&members);
    let (data, store, _folder) = dataset(&plain).unwrap();
    for packed in [gzip(&plain), zstd(&plain), [gzip(&plain[..700]), gzip(&plain[700..])].concat()]
    {
        let (other, others, folder) = dataset(&packed).unwrap();
        assert_eq!(other.fingerprint(), data.fingerprint());
        assert_eq!(layout(&other), layout(&data));
        assert_eq!(files(&folder).len(), 2, "an index and what was taken out");
        for row in 0..data.rows() {
            let (a, b) = (store.sample(&data, row).unwrap(), others.sample(&other, row).unwrap());
            assert_eq!(a.images, b.images);
            assert_eq!(a.conversation, b.conversation);
            assert_eq!(a.origin, b.origin);
        }
        let again = open(&settings(&folder), &others).unwrap();
        assert_eq!((others.asked("read"), again.rows()), (1, 2));
    }
    assert_eq!(data.origin(1), format!("{URI}, sample `d/1` at byte {}", entry(&data, 1).place));
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
    assert!(error.starts_with("sample `image` has more than 4096 members; "), "{error}");
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
