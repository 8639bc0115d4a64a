//! Rows that lie side by side come by one request, and are the same rows.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use stoker_engine::loader::{Verified, Verify};
use stoker_engine::metrics::Report;
use stoker_s3::{Backend, Config, Server};

use super::formats::{Chat, Objects, SAMPLES, chats, jsonl, recipe, tar};
use super::*;

fn server(objects: Objects) -> Server {
    let config = Config { unsigned: true, ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    for (key, bytes) in objects {
        server.put("data", &key, bytes).unwrap();
    }
    server
}

fn store(endpoint: &str) -> Value {
    json!({"fetch": {"endpoint": endpoint, "anonymous": true, "attempts": 2}})
}

/// The samples as an MDS dataset of one shard: messages, and a list of images.
fn mds(chats: &[Chat]) -> Objects {
    let number = |number: usize| u32::try_from(number).unwrap().to_le_bytes().to_vec();
    let rows = chats.iter().map(|chat| {
        let line: Value = serde_json::from_str(&chat.line).unwrap();
        let messages = line["messages"].to_string().into_bytes();
        let sizes = chat.images.iter().flat_map(|(_, image)| number(image.len()));
        let images = chat.images.iter().flat_map(|(_, image)| image.clone());
        let images: Vec<u8> =
            number(chat.images.len()).into_iter().chain(sizes).chain(images).collect();
        [number(images.len()), number(messages.len()), images, messages].concat()
    });
    let rows: Vec<Vec<u8>> = rows.collect();
    let mut shard = number(rows.len());
    let mut begin = 4 + 4 * (rows.len() + 1);
    for length in rows.iter().map(Vec::len).chain([0]) {
        shard.extend(number(begin));
        begin += length;
    }
    shard.extend(rows.concat());
    let index = json!({"version": 2, "shards": [{
        "version": 2, "format": "mds", "compression": null, "zip_data": null,
        "column_names": ["images", "messages"], "column_encodings": ["jpeg_array", "json"],
        "column_sizes": [null, null],
        "raw_data": {"basename": "shard.00000.mds", "bytes": shard.len(), "hashes": {}},
        "samples": rows.len(), "hashes": [], "size_limit": 1 << 26,
    }]});
    let files = [("index.json", index.to_string().into_bytes()), ("shard.00000.mds", shard)];
    files.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

fn run(recipe: Recipe) -> (Vec<Seen>, Report) {
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let seen = drain(&loader, usize::MAX);
    let report = loader.report();
    (seen, report)
}

/// Thirteen batches of three rows in the order of the source; the last row makes no batch.
#[test]
fn rows_of_a_batch_that_lie_side_by_side_come_by_one_request() {
    let chats = chats();
    let images: usize = chats[..39].iter().map(|chat| chat.images.len()).sum();
    let archive = vec![("one.tar".to_owned(), tar(&chats, 0))];
    for (source, objects, images) in [
        ("one.tar", archive, 0),
        ("index.json", mds(&chats), 0),
        ("train.jsonl", jsonl(&chats), images),
    ] {
        let server = server(objects);
        let folder = tempfile::tempdir().unwrap();
        let mut more = store(&server.endpoint());
        more["plan"] = json!({"epochs": 1, "shuffle": "none", "remainder": "drop"});
        let mut recipe = recipe(&format!("s3://data/{source}"), folder.path(), &more);
        // Lines stay in the store.
        recipe.datasets[0].dataset.max_copied = 0;
        let before = server.stats().requests;
        let expected = reference(recipe.clone(), 0..13);
        let opened = server.stats().requests;
        drop(Loader::open(recipe.clone(), rank(0, 1)).unwrap());
        let opening = server.stats().requests - opened;
        let one_by_one = opened - before;
        assert!(one_by_one >= (39 + images) as u64, "{source}: {one_by_one}");

        let (seen, report) = run(recipe);
        assert!(seen == expected, "{source}: other batches");
        let fetch = &report.fetch;
        assert_eq!((fetch.joint_reads, fetch.joined), (13, 39), "{source}");
        let requests = 13 + images as u64 + opening;
        let sent = fetch.requests - fetch.hedges;
        assert_eq!(sent, requests, "{source}: each row by itself takes {one_by_one}");
        assert!(fetch.thrown_away < 39 * 4096, "{source}: {}", fetch.thrown_away);
    }
}

/// A request for a batch that is far ahead overtakes none for the batch that is waited for.
#[test]
fn a_joint_read_is_as_urgent_as_its_batch() {
    let server = server(vec![("one.tar".to_owned(), tar(&chats(), 0))]);
    let folder = tempfile::tempdir().unwrap();
    let mut more = store(&server.endpoint());
    more["plan"] = json!({"epochs": 1, "shuffle": "none", "remainder": "drop"});
    let loader =
        Loader::open(recipe("s3://data/one.tar", folder.path(), &more), rank(0, 1)).unwrap();
    let (begin, path) = (loader.state(), folder.path().join("trace.json"));
    let trace = loader.trace(&path, None).unwrap();
    loader.load_state(&begin).unwrap();
    drain(&loader, usize::MAX);
    trace.stop().unwrap();
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let requests = events.iter().filter(|event| event["name"] == "request");
    let batches = requests.filter_map(|event| event["args"]["batch"].as_u64());
    assert_eq!(batches.collect::<std::collections::BTreeSet<_>>().len(), 13);
}

#[test]
fn whoever_looks_at_all_rows_asks_for_many_at_once() {
    let server = server(vec![("one.tar".to_owned(), tar(&chats(), 0))]);
    let folder = tempfile::tempdir().unwrap();
    let packed = json!({"max-tokens": 1024});
    let recipe = recipe("s3://data/one.tar", folder.path(), &store(&server.endpoint()));
    let mut by_size = recipe.to_value();
    by_size["pack"] = packed;
    let by_size = Recipe::from_value(by_size).unwrap();
    drop(Loader::open(recipe.clone(), rank(0, 1)).unwrap());

    let before = server.stats().requests;
    let verify = Verify::open(recipe, &mut |_, _| {}).unwrap();
    let found = verify.next(PATIENCE).unwrap();
    assert!(matches!(found, Verified::End), "{found:?}");
    let requests = server.stats().requests - before;
    assert!(requests < 6, "{SAMPLES} rows took {requests} requests");

    let expected = reference(by_size.clone(), 0..2);
    let loader = Loader::open(by_size, rank(0, 1)).unwrap();
    assert!(drain(&loader, 2) == expected, "other packed batches");
    assert!(loader.report().fetch.joint_reads > 0);
}

/// Between the text and the images lies much that nobody wants. Two batches of three rows; there are
/// four, so two come twice.
#[test]
fn images_of_a_sample_that_lie_side_by_side_come_by_one_request() {
    let mut builder = ::tar::Builder::new(Vec::new());
    let mut add = |name: String, bytes: &[u8]| {
        let mut header = ::tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes).unwrap();
    };
    let image = json!({"type": "image"});
    let line = json!({"messages": [
        {"role": "user", "content": [image, image, {"type": "text", "text": "What are they?"}]},
        {"role": "assistant", "content": "Two photos."},
    ]});
    let images: Vec<Vec<u8>> =
        chats().into_iter().flat_map(|chat| chat.images).map(|(_, image)| image).collect();
    for (number, pair) in images.chunks_exact(2).take(4).enumerate() {
        add(format!("{number}.json"), line.to_string().as_bytes());
        add(format!("{number}.npy"), &vec![0; 1 << 20]);
        for (place, image) in pair.iter().enumerate() {
            add(format!("{number}.{place}.jpg"), image);
        }
    }
    let server = server(vec![("far.tar".to_owned(), builder.into_inner().unwrap())]);
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe("s3://data/far.tar", folder.path(), &store(&server.endpoint()));
    let expected = reference(recipe.clone(), 0..2);
    let (seen, report) = run(recipe);
    assert!(seen == expected, "other batches");
    assert_eq!((report.fetch.joint_reads, report.fetch.joined), (6, 12));
}

/// A store of one object that fails whenever it is asked for more than one row.
struct Fragile {
    endpoint: String,
    longest: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

fn fragile(bytes: Vec<u8>) -> Fragile {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let longest = Arc::new(AtomicUsize::new(usize::MAX));
    let store = Fragile { endpoint, longest, refused: Arc::default(), stopped: Arc::default() };
    let (longest, refused) = (Arc::clone(&store.longest), Arc::clone(&store.refused));
    let (stopped, bytes) = (Arc::clone(&store.stopped), Arc::new(bytes));
    let serve = move || {
        for stream in listener.incoming().take_while(|_| !stopped.load(Ordering::SeqCst)) {
            let (longest, refused) = (Arc::clone(&longest), Arc::clone(&refused));
            let bytes = Arc::clone(&bytes);
            let one = move || answer(&mut stream.unwrap(), &bytes, &longest, &refused);
            std::thread::Builder::new().spawn(one).unwrap();
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    store
}

fn answer(stream: &mut TcpStream, bytes: &[u8], longest: &AtomicUsize, refused: &AtomicUsize) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let asked = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let range: Option<Range<usize>> = asked.map(|asked| {
        let (first, last) = asked.split_once('-').unwrap();
        first.parse().unwrap()..last.parse::<usize>().unwrap() + 1
    });
    let (status, length, range) = match range {
        None => ("200 OK", bytes.len(), 0..0),
        Some(range) if range.len() > longest.load(Ordering::SeqCst) => {
            refused.fetch_add(1, Ordering::SeqCst);
            ("500 Internal Server Error", 0, 0..0)
        }
        Some(range) => ("206 Partial Content", range.len(), range),
    };
    let (first, last) = (range.start, range.end.wrapping_sub(1));
    let answer = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\netag: \"v\"\r\ncontent-length: {length}\r\n\
         content-range: bytes {first}-{last}/{}\r\n\r\n",
        bytes.len()
    );
    let sent = stream.write_all(answer.as_bytes()).and_then(|()| stream.write_all(&bytes[range]));
    drop(sent);
}

#[test]
fn a_joint_read_that_fails_takes_no_row_with_it() {
    let chats = chats();
    let store_ = fragile(tar(&chats, 0));
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe("s3://data/one.tar", folder.path(), &store(&store_.endpoint));
    let expected = reference(recipe.clone(), 0..14);
    let longest = chats.iter().map(|chat| tar(std::slice::from_ref(chat), 0).len()).max().unwrap();
    store_.longest.store(longest, Ordering::SeqCst);
    let (seen, report) = run(recipe);
    assert!(seen == expected, "other batches");
    assert!(store_.refused.load(Ordering::SeqCst) > 0);
    assert!(report.fetch.joint_reads < 14, "some were longer than the longest row");
}
