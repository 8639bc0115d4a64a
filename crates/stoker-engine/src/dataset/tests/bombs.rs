//! A few bytes that claim to be many, or become them: refused in words, at once.

use std::fmt::Write;

use serde_json::json;

use super::super::Dataset;
use super::tar::archive;
use super::{Bucket, Memory, URI, config, gzip, open, parse, refusal, zstd};
use crate::error::Result;
use crate::recipe;

fn code(line: &str) -> &'static str {
    parse(line).map_or_else(|flaw| flaw.code, |_| "accepted")
}

#[test]
fn json_that_becomes_more_than_it_is_is_a_bad_sample() {
    let zeros = format!("[{}0]", "0,".repeat(300_000));
    let turns = r#""messages":[{"role":"user","content":"?"},{"role":"assistant","content":"!"}]"#;
    assert_eq!(code(&format!("{{{turns}}}")), "accepted");
    assert_eq!(code(&format!("{{{turns},\"x\":{zeros}}}")), "too-many-values");
    assert_eq!(code(&json!({ "messages": zeros }).to_string()), "too-many-values");
    assert_eq!(code(&format!("{{{turns},\"tools\":{}}}", json!(zeros))), "bad-tools");
    assert_eq!(code(&format!("{{{turns},\"x\":{}}}", "[".repeat(1 << 17))), "not-json");
    // Letters are no values.
    let commas = ",:[{".repeat(1 << 18);
    assert_eq!(code(&format!("{{{}}}", turns.replace('?', &commas))), "accepted");
}

#[test]
fn images_of_a_sample_are_limited() {
    let of = |count: usize| {
        let images = vec!["a.jpg"; count];
        let placeholders = "<image>".repeat(count);
        let turns = json!([{"role": "user", "content": placeholders}]);
        json!({"images": images, "messages": turns}).to_string()
    };
    assert_eq!(code(&of(1024)), "accepted");
    let flaw = parse(of(1025)).unwrap_err();
    assert_eq!(
        flaw.to_string(),
        "the sample has 1025 images, and up to 1024 are read [dataset/too-many-images]; make several \
         samples of it"
    );
}

fn opened(key: &str, bytes: &[u8], max_copied: u64) -> Result<Dataset> {
    let folder = tempfile::tempdir().unwrap();
    let source = vec![format!("s3://bucket/{key}")];
    let store = Bucket::new([(key, bytes)]);
    open(&recipe::Dataset { source, max_copied, ..config(&folder) }, &store)
}

/// The limit on what is copied is one on what it unpacks to.
#[test]
fn shards_that_unpack_to_more_than_may_be_copied_are_refused() {
    let (mib, limit) = (1 << 20, 2 << 20);
    let lines = format!("{{\"x\": \"{}\"}}\n", " ".repeat(1000)).repeat(3 * mib / 1000);
    let blank = "\n".repeat(3 * mib);
    let zeros = vec![0; 3 * mib];
    let of = |name| archive(&[("a.json", b"{}".as_slice()), (name, zeros.as_slice())]);
    let members = of("a.jpg");
    // What nobody wants is unpacked to be passed over, and counts too.
    let unwanted = of("README");
    for (name, content) in [
        ("x.jsonl", lines.as_bytes()),
        ("x.jsonl", blank.as_bytes()),
        ("x.tar", members.as_slice()),
        ("x.tar", unwanted.as_slice()),
    ] {
        for (ending, packed) in [("gz", gzip(content)), ("zst", zstd(content))] {
            assert!(packed.len() < mib, "it is a bomb");
            let key = format!("data/{name}.{ending}");
            let error = opened(&key, &packed, limit).unwrap_err().to_string();
            let expected = "the shards unpack to more than 2.0 MiB; raise dataset.max-copied if they \
                            are meant to, and there is room where the index lies: s3://bucket/data/x";
            assert!(error.starts_with(expected), "{key}: {error}");
        }
    }
    assert!(opened("data/x.jsonl.gz", &gzip(lines.as_bytes()), 4 << 20).is_ok());
}

/// All shards of a dataset count, and not each by itself.
#[test]
fn what_is_unpacked_is_limited_for_all_shards_together() {
    let folder = tempfile::tempdir().unwrap();
    let packed = gzip(format!("{{\"x\": \"{}\"}}\n", " ".repeat(1 << 20)).as_bytes());
    let store = Bucket::new((0..3).map(|shard| (format!("data/{shard}.jsonl.gz"), packed.clone())));
    let source = vec!["s3://bucket/data/{0..2}.jsonl.gz".to_owned()];
    let config =
        |max_copied| recipe::Dataset { source: source.clone(), max_copied, ..config(&folder) };
    let error = open(&config(2 << 20), &store).unwrap_err().to_string();
    assert!(error.contains("the shards unpack to more than 2.0 MiB"), "{error}");
    assert_eq!(open(&config(4 << 20), &store).unwrap().rows(), 3);
}

#[test]
fn a_shard_of_mds_that_claims_billions_of_rows_is_not_believed() {
    let index = |bytes: usize| {
        let data = json!({"basename": "0.mds", "bytes": 1_u64 << 34, "hashes": {}});
        let zip = json!({"basename": "0.mds.zstd", "bytes": bytes, "hashes": {}});
        json!({"version": 2, "shards": [{
            "version": 2, "format": "mds", "compression": "zstd", "hashes": [], "samples": 1,
            "size_limit": null, "column_names": ["messages"], "column_encodings": ["json"],
            "column_sizes": [null], "raw_data": data, "zip_data": zip,
        }]})
        .to_string()
    };
    let shard = zstd(&[&u32::MAX.to_le_bytes()[..], &vec![0; 1 << 22]].concat());
    let store = Bucket::new([
        ("data/index.json", index(shard.len()).into_bytes()),
        ("data/0.mds.zstd", shard),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let source = vec!["s3://bucket/data/index.json".to_owned()];
    let error =
        open(&recipe::Dataset { source, ..config(&folder) }, &store).unwrap_err().to_string();
    let expected = "it claims 4294967295 rows, and up to 8388608 are read";
    assert!(error.contains(expected), "{error}");
}

/// Names of a megabyte each cost nothing once they are compressed.
#[test]
fn names_of_members_are_limited_together() {
    let mut builder = ::tar::Builder::new(Vec::new());
    for number in 0..40 {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(0);
        let name = format!("a.{number}{}", "x".repeat(60_000));
        builder.append_data(&mut header, name, std::io::empty()).unwrap();
    }
    let bytes = builder.into_inner().unwrap();
    let error = opened("data/x.tar.gz", &gzip(&bytes), 1 << 30).unwrap_err().to_string();
    assert!(error.starts_with("sample `a` has more than 4096 members, or a megabyte"), "{error}");
}

/// The window that a frame asks for is memory: up to 128 MiB is given.
#[test]
fn zstd_with_a_huge_window_is_refused() {
    // The magic, no flags, a window of 2^30 bytes, and one last block of three bytes as they are.
    let frame = b"\x28\xB5\x2F\xFD\x00\xA0\x19\0\0{}\n";
    let error = refusal(*frame);
    assert!(error.starts_with("the zstd data are damaged: ") && error.contains(URI), "{error}");
}

#[test]
fn a_split_that_names_more_shards_than_there_can_be_is_refused() {
    let many = "  - a/{0..999998}.tar\n".repeat(8);
    let long = format!("  - a/{{0..999998}}{}.tar\n", "x".repeat(4000));
    for lines in [many, long] {
        let splits = format!("split_parts:\n  train:\n{lines}");
        let store = Bucket::new([("data/.nv-meta/split.yaml", splits)]);
        let folder = tempfile::tempdir().unwrap();
        let source = vec!["s3://bucket/data/.nv-meta/split.yaml".to_owned()];
        let config = recipe::Dataset { source, ..config(&folder) };
        let error = open(&config, &store).unwrap_err().to_string();
        assert!(error.contains(" names more than "), "{error}");
    }
}

/// YAML may refer to what it said before, and so say much in few words.
#[test]
fn yaml_that_refers_to_itself_is_refused() {
    let mut splits =
        "x0: &x0 [a.tar, a.tar, a.tar, a.tar, a.tar, a.tar, a.tar, a.tar]\n".to_owned();
    for level in 1..20 {
        let before = format!("*x{}", level - 1);
        writeln!(splits, "x{level}: &x{level} [{}]", vec![before; 8].join(", ")).unwrap();
    }
    splits += "split_parts: {train: *x19}\n";
    let store = Bucket::new([("data/.nv-meta/split.yaml", splits)]);
    let folder = tempfile::tempdir().unwrap();
    let source = vec!["s3://bucket/data/.nv-meta/split.yaml".to_owned()];
    let config = recipe::Dataset { source, ..config(&folder) };
    let error = open(&config, &store).unwrap_err().to_string();
    assert!(error.starts_with("the file is none of Energon's: "), "{error}");
}

/// A line that is too long is passed over, however long it is, and the next one is read.
#[test]
fn lines_are_never_held() {
    let long = " ".repeat(40 << 20);
    let text = format!("{{\"a\": 1}}\n{{\"x\": \"{long}\"}}\n{{\"a\": 2}}\n");
    let folder = tempfile::tempdir().unwrap();
    let data = open(&config(&folder), &Memory::new(text)).unwrap();
    assert_eq!(data.rows(), 3);
    assert_eq!(data.locate(1).unwrap_err().code, "too-long-line");
    assert!(data.locate(0).is_ok() && data.locate(2).is_ok());
}
