//! The fetch room against a real S3 server, and against servers that misbehave.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod cache;
mod checksums;
mod credentials;
mod devices;
mod faults;
mod issued;
mod large;
mod listing;
mod memory;
mod stores;

use std::fmt::Write as _;
use std::future::ready;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use stoker_engine::error::{Error, FetchError, FetchErrorKind};
use stoker_engine::fetch::Fetcher;
use stoker_engine::metrics::{Metrics, Room};
use stoker_engine::recipe;
use stoker_engine::sample::{Extent, Location, Scheme};
use stoker_s3::{Backend, Config, Profile, Server};

fn server(config: &Config) -> Server {
    Server::start(&Config { unsigned: true, ..config.clone() }, Backend::memory()).unwrap()
}

fn settings(endpoint: String) -> recipe::Fetch {
    recipe::Fetch { endpoint: Some(endpoint), anonymous: true, ..recipe::Fetch::default() }
}

fn fetcher(settings: &recipe::Fetch) -> (Fetcher, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    (Fetcher::new(settings, Arc::clone(&metrics)).unwrap(), metrics)
}

fn object(key: &str) -> Arc<Location> {
    Arc::new(Location { scheme: Scheme::S3, authority: "bucket".into(), key: key.into() })
}

fn whole(key: &str) -> Extent {
    Extent { object: object(key), range: None }
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|index| (index * 7 + index / 256) as u8).collect::<Vec<_>>().into()
}

fn fetch_error<T: std::fmt::Debug>(result: Result<T, Error>) -> FetchError {
    match result.unwrap_err() {
        Error::Fetch(error) => *error,
        other => panic!("{other}"),
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

/// A server that hands each connection, with its number and the head of its request in small
/// letters, to `answer`.
fn raw(answer: impl Fn(usize, &str, &mut TcpStream) + Send + 'static) -> String {
    let number = AtomicUsize::new(0);
    exact(move |head, stream| {
        answer(number.fetch_add(1, Ordering::Relaxed), &head.to_lowercase(), stream);
    })
}

/// A server that hands each connection, with the head of its request as it came, to `answer`.
fn exact(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            answer(&String::from_utf8(head).unwrap(), &mut stream);
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    endpoint
}

fn reply(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    stream.write_all((head + "\r\n").as_bytes()).unwrap();
    stream.write_all(body).unwrap();
}

#[test]
fn objects_and_ranges_come_back_byte_for_byte() {
    let server = server(&Config::default());
    let bytes = pattern(300_000);
    server.put("bucket", "a/b.jpg", bytes.clone()).unwrap();
    server.put("bucket", "empty", "").unwrap();
    let (fetcher, metrics) = fetcher(&settings(server.endpoint()));
    assert_eq!(fetcher.read_blocking(&whole("a/b.jpg")).unwrap(), bytes);
    assert_eq!(fetcher.read_blocking(&whole("empty")).unwrap(), "");
    for range in [0..1, 0..300_000, 1000..1001, 299_999..300_000, 70_000..70_000] {
        let extent = Extent { object: object("a/b.jpg"), range: Some(range.clone()) };
        let expected = bytes.slice(range.start as usize..range.end as usize);
        assert_eq!(fetcher.read_blocking(&extent).unwrap(), expected);
    }
    let info = fetcher.stat_blocking(&object("a/b.jpg")).unwrap();
    assert_eq!(info.size, 300_000);
    assert!(info.version.unwrap().starts_with('"'));
    assert_eq!(metrics.fetch.requests.get(), 7);
    assert_eq!(metrics.fetch.requests.get(), server.stats().requests);
    assert_eq!(metrics.fetch.retries.get(), 0);
    assert_eq!(metrics.fetch.in_flight.get(), 0);
    let meter = metrics.room(Room::Fetch);
    assert_eq!((meter.items.get(), meter.bytes.get()), (7, 300_000 + 1 + 300_000 + 1 + 1));
    assert!(meter.busy_nanos.get() > 0);
}

#[test]
fn the_beginning_of_an_object_comes_with_the_size_of_all() {
    let server = server(&Config::default());
    let bytes = pattern(300_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    std::fs::write(&path, &bytes).unwrap();
    let local = Location {
        scheme: Scheme::File,
        authority: String::new(),
        key: path.to_str().unwrap().into(),
    };
    server.put("bucket", "large", bytes.clone()).unwrap();
    server.put("bucket", "small", bytes.slice(..10)).unwrap();
    server.put("bucket", "empty", "").unwrap();
    let (fetcher, metrics) = fetcher(&settings(server.endpoint()));
    let part = Extent { object: object("large"), range: Some(70_000..70_500) };
    let file = Extent { object: Arc::new(local), range: None };
    for (extent, most, range, size) in [
        (&whole("large"), 1000, 0..1000, 300_000),
        (&whole("large"), 300_000, 0..300_000, 300_000),
        (&whole("large"), 400_000, 0..300_000, 300_000),
        (&whole("small"), 1000, 0..10, 10),
        (&whole("empty"), 1000, 0..0, 0),
        (&part, 1000, 70_000..70_500, 500),
        (&part, 100, 70_000..70_100, 500),
        (&file, 1000, 0..1000, 300_000),
        (&file, 400_000, 0..300_000, 300_000),
    ] {
        let found = run(fetcher.beginning(extent, most)).unwrap();
        assert_eq!(found, (bytes.slice(range), size), "{extent:?}");
    }
    assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (7, 0));
    let error = fetch_error(run(fetcher.beginning(&whole("missing"), 10)));
    assert_eq!(error.kind, FetchErrorKind::NotFound);
}

/// A small object comes whole; of a large one nothing is read.
#[test]
fn a_server_that_does_not_know_ranges_is_not_asked_for_more_than_the_beginning() {
    let endpoint = raw(|_, head, stream| {
        let length = if head.contains("/large") { 5000 } else { 50 };
        let told = length.to_string();
        reply(stream, "200 OK", &[("content-length", &told)], &pattern(length));
    });
    let (fetcher, _) = fetcher(&settings(endpoint));
    assert_eq!(run(fetcher.beginning(&whole("small"), 1000)).unwrap(), (pattern(50), 50));
    assert_eq!(run(fetcher.beginning(&whole("large"), 1000)).unwrap(), (Bytes::new(), 5000));
}

#[test]
fn keys_reach_the_store_as_they_are() {
    let server = server(&Config::default());
    let keys = [
        "a//b.jpg",
        "/leading",
        "trailing/",
        "100% sure.jpg",
        "a%20b",
        "%2e%2e/x",
        "plus+and space",
        "ünïcode/日本語 🖼.png",
        "q?x=1&y#z",
        "~!@$^&*()=[]{}|;:'\",<>`",
        "a\\b",
        ".hidden/...",
    ];
    for key in keys {
        server.put("bucket", key, key.to_owned()).unwrap();
    }
    let (fetcher, _) = fetcher(&settings(server.endpoint()));
    for key in keys {
        assert_eq!(fetcher.read_blocking(&whole(key)).unwrap(), key, "{key}");
    }
    let error = fetch_error(fetcher.read_blocking(&whole("a/../b")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Forbidden, 1));
}

#[test]
fn a_missing_object_is_asked_for_once_and_named() {
    let server = server(&Config::default());
    server.put("bucket", "there", "x").unwrap();
    let (fetcher, metrics) = fetcher(&settings(server.endpoint()));
    let error = fetch_error(fetcher.read_blocking(&whole("not/there.jpg")));
    assert_eq!((error.kind, error.status), (FetchErrorKind::NotFound, Some(404)));
    assert_eq!((error.attempts, metrics.fetch.requests.get()), (1, 1));
    assert_eq!(error.uri, "s3://bucket/not/there.jpg");
    let error = fetch_error(fetcher.stat_blocking(&object("not/there.jpg")));
    assert_eq!(error.kind, FetchErrorKind::NotFound);
    let elsewhere =
        Location { scheme: Scheme::S3, authority: "other-bucket".into(), key: "there".into() };
    let extent = Extent { object: Arc::new(elsewhere), range: None };
    let error = fetch_error(fetcher.read_blocking(&extent));
    assert!(error.reason.contains("NoSuchBucket"), "{error}");
    assert!(error.hint.is_some());
}

#[test]
fn a_range_that_the_object_does_not_have_is_an_error_not_fewer_bytes() {
    let server = server(&Config::default());
    server.put("bucket", "key", pattern(100)).unwrap();
    let (fetcher, _) = fetcher(&settings(server.endpoint()));
    for range in [50..101, 100..200] {
        let extent = Extent { object: object("key"), range: Some(range.clone()) };
        let error = fetch_error(fetcher.read_blocking(&extent));
        assert_eq!((error.kind, error.attempts), (FetchErrorKind::Changed, 1), "{error}");
        assert_eq!(error.range, Some(range));
    }
}

#[test]
fn a_refusal_says_what_to_check_and_is_not_repeated() {
    let open = server(&Config::default());
    open.put("bucket", "key", "x").unwrap();
    let closed = Server::start(&Config::default(), Backend::memory()).unwrap();
    closed.put("bucket", "key", "x").unwrap();
    let (fetcher, metrics) = fetcher(&settings(closed.endpoint()));
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.status), (FetchErrorKind::Denied, Some(403)));
    assert_eq!(metrics.fetch.requests.get(), 1);
    assert!(error.hint.unwrap().contains("anonymous"));
}

#[test]
fn what_the_store_says_about_a_refusal_is_passed_on() {
    let endpoint = raw(|_, _, stream| {
        let body = b"<Error><Code>InvalidBucketName</Code><Message>The specified bucket is not \
                     valid.</Message><BucketName>bucket</BucketName></Error>";
        reply(stream, "400 Bad Request", &[("content-length", &body.len().to_string())], body);
    });
    let (fetcher, _) = fetcher(&settings(endpoint));
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Unconfigured, 1));
    let expected = "the store does not take the request (InvalidBucketName: The specified bucket \
                    is not valid)";
    assert_eq!(error.reason, expected);
}

#[test]
fn where_nothing_listens_the_error_comes_soon_and_counts_its_attempts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let settings = recipe::Fetch { attempts: 4, ..settings(endpoint) };
    let (fetcher, metrics) = fetcher(&settings);
    let begin = Instant::now();
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Transient, 4), "{error}");
    assert!(error.to_string().contains("after 4 attempts"), "{error}");
    assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (0, 3));
}

#[test]
fn data_may_not_name_addresses_inside() {
    let (fetcher, metrics) = fetcher(&recipe::Fetch::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), "[::1]".to_owned()] {
        let key = "latest/meta-data?token=secret".to_owned();
        let address = Location { scheme: Scheme::Http, authority: host.clone(), key };
        let error =
            fetch_error(fetcher.read_blocking(&Extent { object: Arc::new(address), range: None }));
        assert_eq!((error.kind, error.attempts), (FetchErrorKind::Forbidden, 1), "{host}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody knocked");
    assert_eq!(metrics.fetch.in_flight.get(), 0);
}

#[test]
fn a_reader_gives_the_whole_object_in_order() {
    let server = server(&Config { profile: Profile::Express, ..Config::default() });
    let bytes = pattern(20_000_001);
    server.put("bucket", "large.jsonl", bytes.clone()).unwrap();
    server.put("bucket", "empty", "").unwrap();
    let (fetcher, metrics) = fetcher(&settings(server.endpoint()));
    let mut read = Vec::new();
    fetcher.reader(&object("large.jsonl")).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    assert_eq!(metrics.fetch.requests.get(), 4, "one for the size, three for the ranges");
    let mut none = Vec::new();
    fetcher.reader(&object("empty")).unwrap().read_to_end(&mut none).unwrap();
    assert!(none.is_empty());
    let missing = fetch_error(fetcher.reader(&object("missing")).map(drop));
    assert_eq!(missing.kind, FetchErrorKind::NotFound);
}

#[test]
fn a_reader_does_not_mix_versions_and_its_error_carries_ours() {
    let server = server(&Config::default());
    server.put("bucket", "key", pattern(30_000_000)).unwrap();
    let (fetcher, _) = fetcher(&settings(server.endpoint()));
    let mut reader = fetcher.reader(&object("key")).unwrap();
    let mut start = [0; 10];
    reader.read_exact(&mut start).unwrap();
    assert_eq!(start[..], pattern(10));
    server.put("bucket", "key", vec![0; 30_000_000]).unwrap();
    let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
    let ours = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
    assert!(matches!(ours, Error::Fetch(fetch) if fetch.kind == FetchErrorKind::Changed), "{ours}");
}

#[test]
fn local_files_are_read_through_the_same_door() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b%20ü.bin");
    let bytes = pattern(100_000);
    std::fs::write(&path, &bytes).unwrap();
    let (fetcher, _) = fetcher(&recipe::Fetch::default());
    let at = |path: &std::path::Path| {
        let key = path.to_str().unwrap().to_owned();
        Arc::new(Location { scheme: Scheme::File, authority: String::new(), key })
    };
    let extent = Extent { object: at(&path), range: None };
    assert_eq!(fetcher.read_blocking(&extent).unwrap(), bytes);
    let part = Extent { object: at(&path), range: Some(5..50) };
    assert_eq!(fetcher.read_blocking(&part).unwrap(), bytes.slice(5..50));
    assert_eq!(fetcher.stat_blocking(&at(&path)).unwrap().size, 100_000);
    let mut read = Vec::new();
    fetcher.reader(&at(&path)).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes);
    let beyond = Extent { object: at(&path), range: Some(0..100_001) };
    assert_eq!(fetch_error(fetcher.read_blocking(&beyond)).kind, FetchErrorKind::Changed);
    for missing in [folder.path().join("none"), path.join("below"), folder.path().to_owned()] {
        let extent = Extent { object: at(&missing), range: None };
        let error = fetch_error(fetcher.read_blocking(&extent));
        assert_eq!((error.kind, error.attempts), (FetchErrorKind::NotFound, 1), "{error}");
    }
}
