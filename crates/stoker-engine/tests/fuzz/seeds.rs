//! What is known, for each door: golden data, words, and what fuzzers found once. Fuzzers begin with
//! it as well (`fuzz/fuzz_targets/doors.rs`).

use std::fs;
use std::path::{Path, PathBuf};

type Seed = (String, Vec<u8>);

/// The repository, above the package that this is compiled into.
fn root() -> &'static Path {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.find(|folder| folder.join("testdata/golden").is_dir()).unwrap()
}

/// The seeds of a target, in an order that does not depend on the machine.
pub(crate) fn of(target: &str) -> Vec<Seed> {
    let (folders, words): (&[&str], &[&str]) = match target {
        "image" => (&["images", "odd", "corpus"], &["<html>", "\u{1f}\u{8b}"]),
        "huffman" | "colours" => (&["jpeg", "images", "odd", "corpus"], &[]),
        "line" => (&["dataset"], LINES),
        "address" => (&[], ADDRESSES),
        "text" => (&[], &["{}\n\n{\"a\": 1}\r\n  {}", "\u{feff}{}\n", "[1]", ""]),
        "archive" => (&["tar"], &[]),
        "mds-shard" => (&["mds/lists", "mds/plain", "mds/vqa", "mds/zstd", "mds/gz"], &[]),
        "mds-index" => (&["mds/lists", "mds/plain", "mds/zstd", "mds/pickled"], &[]),
        "energon" => (&[], SPLITS),
        "table" => (&["parquet"], &[]),
        "index" => (&[], INDEXES),
        "listing" => (&[], LISTINGS),
        "answer" => (&[], ANSWERS),
        "cursor" => (&[], CURSORS),
        "recipe" => (&[], RECIPES),
        "specials" => (&[], &["<|im_start|>user\nhi<|im_end|>\n", "<s><s", "<|im_\nend|>é|"]),
        other => panic!("no seeds for {other}"),
    };
    let golden = root().join("testdata/golden");
    let mut seeds: Vec<Seed> =
        words.iter().map(|it| (format!("{it:?}"), it.as_bytes().into())).collect();
    for folder in folders {
        seeds.extend(files(&golden.join(folder)));
    }
    seeds.extend(files(&root().join("testdata/fuzz").join(target)));
    if ["image", "huffman", "colours"].contains(&target) {
        let beside =
            root().ancestors().map(|above| above.join("shared/corpus")).find(|it| it.is_dir());
        seeds.extend(beside.into_iter().flat_map(|folder| files(&folder)));
    }
    seeds
}

/// The files of a folder, if there is one.
fn files(folder: &Path) -> Vec<Seed> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.into_iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

const LINES: &[&str] = &[
    r#"{"messages":[{"role":"user","content":[{"type":"image","image":"a.jpg"},{"type":"text","text":"?"}]},{"role":"assistant","content":"It.","train":0}]}"#,
    r#"{"image":"a/../b.jpg","conversations":[{"from":"human","value":"<image>\nWhat?"},{"from":"gpt","value":"That."}]}"#,
    r#"{"images":["data:image/png;base64,iVBORw0KGgo=",{"path":"x","bytes":null}],"texts":[{"user":"<image>?","assistant":"<image>"}],"tools":"[{}]"}"#,
    r#"{"messages":"[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"tool\",\"content\":null,\"tool_calls\":[]}]"}"#,
    r#"{"q":"<image> x","a":"y","image":{"url":"https://host.example/a.jpg?x=1"}}"#,
    r#"{"messages":[{"role":"user","content":"\ud800\u0000\\"}],"x":[NaN,1e999,-0.0,18446744073709551616]}"#,
];

const ADDRESSES: &[&str] = &[
    "s3://bucket/a b//c%20d?e#f",
    "file:///etc/passwd",
    "file:/data/%2e%2e/etc/passwd",
    "/data/../etc/passwd",
    "../../etc/passwd",
    "a/./b/../c.jpg",
    "http://[::ffff:169.254.169.254]/latest",
    "HTTPS://user:pass@host.example:443/a",
    "http://0x7f.1/",
    "data:image/png;base64,QUJD",
    "abfss://box@account/a",
    "az://$root/a",
    "gs://../a",
];

const SPLITS: &[&str] = &[
    "split_parts:\n  train:\n  - a/{0..3}.tar\n  - b.tar\n  val: [c.tar]\nexclude: [b.tar]\n",
    "{\"split_parts\": {\"train\": [\"a-{00..02}.tar\"]}, \"exclude\": [\"a-00.tar/x\"]}",
    "split_parts: &a {train: [*a]}\n",
    "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nsplit_parts: {train: *c}\n",
    "split_parts:\n  train:\n  - ../../etc/passwd\n",
];

const INDEXES: &[&str] = &[
    "\u{1}\0\0\0\0\0\0\0\0\u{1}k\0\u{3}jpg\0\u{9}\u{4}json\0\u{9}\0\0\0\0\0\0\0\0\u{14}\0\0\0\0\0\0\0",
    "\u{2}\0\0\0\0\0\0\0\u{5}\u{4}json\u{2}\u{7}\0\0\0\0\0\0\0\0",
];

const LISTINGS: &[&str] = &[
    "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Contents><Key>data/a &amp; b.tar</Key><ETag>&quot;0x8D1&quot;</ETag><Size>7</Size></Contents><NextContinuationToken>2!x</NextContinuationToken></ListBucketResult>",
    "<EnumerationResults><Blobs><Blob><Name>data/a.tar</Name><Properties><Etag>W/x</Etag><Content-Length>7</Content-Length></Properties></Blob></Blobs><NextMarker/></EnumerationResults>",
    "<!DOCTYPE l [<!ENTITY a \"aa\"><!ENTITY b \"&a;&a;\">]><ListBucketResult><Contents><Key>&b;</Key><Size>99999999999999999999</Size></Contents></ListBucketResult>",
];

const ANSWERS: &[&str] = &[
    "bytes 0-9/10",
    "bytes 5-18446744073709551614/*",
    "bytes */10",
    "bytes 9-0/1",
    "<Error><Code>SlowDown</Code><Message>Please &lt;reduce&gt; your rate.\nRequestId: 1</Message></Error>",
];

const CURSORS: &[&str] = &[
    r#"{"version":2,"batches":7,"samples":56,"bad_samples":1,"ended":false,"plan":{"seed":"0","text":"x"}}"#,
    r#"{"version":2,"batches":18446744073709551615,"samples":-1,"bad_samples":1e3,"window_start":4,"ended":true,"plan":{}}"#,
];

const RECIPES: &[&str] = &[
    "model = 'm'\n[dataset]\nsource = ['s3://b/{a,b}/{00..03}.tar', 'x/**/*.jsonl']\nmax-line = '16MiB'\n[fetch]\nread-timeout = '250ms'\n[engine]\nmemory = '1.5GiB'\n",
    "[[datasets]]\nname = 'a'\nsource = '/x'\nweight = 0.5\n[[datasets]]\nname = 'b'\nsource = '/y'\n[plan]\nstages = [{ from = 10, weights = { a = 2 } }]\n",
    r#"{"model":"m","dataset":{"source":"/x.jsonl","fields":{"images":"i"}},"pack":{"max-tokens":4096},"plan":{"epochs":1e0,"temperature":2.5}}"#,
    "[dataset]\nsource = 'a{0..99999999999}b{{{'\n[image]\nmax-bytes = '99999999999TB'\n",
];
