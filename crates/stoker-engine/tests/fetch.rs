//! The fetch room against a real S3 server, and against servers that misbehave.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

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

/// A server that hands each connection, with its number and the head of its request, to `answer`.
fn raw(answer: impl Fn(usize, &str, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            answer(number, &String::from_utf8(head).unwrap().to_lowercase(), &mut stream);
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
    assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (4, 3));
}

#[test]
fn many_reads_share_the_allowed_number_of_requests() {
    let server = server(&Config { profile: Profile::Standard, ..Config::default() });
    for number in 0..40 {
        server.put("bucket", &format!("{number}"), pattern(1000 + number)).unwrap();
    }
    let settings = recipe::Fetch { concurrency: 8, ..settings(server.endpoint()) };
    let (fetcher, metrics) = fetcher(&settings);
    let reads: Vec<_> = (0..40)
        .map(|number| {
            let fetcher = fetcher.clone();
            let read =
                async move { fetcher.read(&whole(&format!("{number}")), |_| ready(Ok(()))).await };
            (number, read)
        })
        .map(|(number, read)| (number, fetcher.spawn(read)))
        .collect();
    for (number, read) in reads {
        assert_eq!(run(read).unwrap().unwrap(), pattern(1000 + number));
    }
    let peak = server.stats().peak_in_flight;
    assert!((2..=8).contains(&peak), "{peak}");
    assert_eq!(metrics.fetch.in_flight.peak(), 8);
}

#[test]
fn while_memory_is_waited_for_no_connection_and_no_slot_is_held() {
    let server = server(&Config::default());
    server.put("bucket", "large", pattern(5_000_000)).unwrap();
    server.put("bucket", "small", pattern(10)).unwrap();
    let settings = recipe::Fetch { concurrency: 1, ..settings(server.endpoint()) };
    let (fetcher, metrics) = fetcher(&settings);
    let (grant, granted) = tokio::sync::oneshot::channel::<()>();
    let (asked, was_asked) = mpsc::sync_channel(2);
    let waiting = fetcher.clone();
    let large = fetcher.spawn(async move {
        let granted = std::sync::Mutex::new(Some(granted));
        let admit = |size| {
            asked.send(size).unwrap();
            let granted = granted.lock().unwrap().take().expect("it is asked once");
            async move {
                granted.await.unwrap();
                Ok(())
            }
        };
        waiting.read(&whole("large"), admit).await
    });
    assert_eq!(was_asked.recv().unwrap(), 5_000_000);
    // The only slot is free, and little of the body has left the server's buffers.
    assert_eq!(fetcher.read_blocking(&whole("small")).unwrap(), pattern(10));
    assert_eq!(metrics.fetch.in_flight.get(), 0);
    grant.send(()).unwrap();
    assert_eq!(run(large).unwrap().unwrap(), pattern(5_000_000));
    assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (3, 0));
}

#[test]
fn memory_that_is_refused_ends_the_read_with_that_error() {
    let server = server(&Config::default());
    server.put("bucket", "key", pattern(1000)).unwrap();
    let (fetcher, _) = fetcher(&settings(server.endpoint()));
    let refused = run(fetcher.read(&whole("key"), |size| {
        ready(if size > 999 { Err(Error::Bug("no room".into())) } else { Ok(()) })
    }));
    assert_eq!(refused.unwrap_err(), Error::Bug("no room".into()));
    let ranged = Extent { object: object("key"), range: Some(0..10) };
    let sizes = AtomicUsize::new(0);
    let read = fetcher.read(&ranged, |size| {
        sizes.fetch_add(size as usize, Ordering::Relaxed);
        ready(Ok(()))
    });
    assert_eq!(run(read).unwrap(), pattern(10));
    assert_eq!(sizes.into_inner(), 10);
}

#[test]
fn an_answer_of_untold_size_is_taken_up_to_a_limit_and_asks_for_memory_once() {
    let endpoint = raw(|_, head, stream| {
        let length = if head.contains("/large") { Fetcher::UNTOLD as usize + 1 } else { 1000 };
        // A client that has had enough hangs up.
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&pattern(length))));
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint));
    let asked = AtomicUsize::new(0);
    let admit = |size| {
        assert_eq!(size, Fetcher::UNTOLD);
        asked.fetch_add(1, Ordering::Relaxed);
        let mut late = true;
        std::future::poll_fn(move |context| {
            if std::mem::take(&mut late) {
                context.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(Ok(()))
        })
    };
    assert_eq!(run(fetcher.read(&whole("small"), admit)).unwrap(), pattern(1000));
    assert_eq!((asked.into_inner(), metrics.fetch.requests.get()), (1, 2));
    let error = fetch_error(fetcher.read_blocking(&whole("large")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::TooLarge, 1), "{error}");
}

#[test]
fn dropping_the_last_clone_ends_the_thread_while_requests_stall() {
    let endpoint = raw(|_, _, stream| {
        // Held open, never answered.
        std::mem::forget(stream.try_clone().unwrap());
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint.clone()));
    let stalled = Arc::new(fetcher.clone());
    let held = Arc::clone(&stalled);
    let thread = std::thread::Builder::new();
    let blocked = thread.spawn(move || held.read_blocking(&whole("key"))).unwrap();
    while metrics.fetch.in_flight.get() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let begin = Instant::now();
    fetcher.close();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(blocked.join().unwrap().unwrap_err(), Error::Stopped);
    assert_eq!(metrics.fetch.in_flight.get(), 0);
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap_err(), Error::Stopped);
    assert!(run(fetcher.spawn(async {})).unwrap_err().is_cancelled());
    drop(stalled);

    // Without `close`: the read is dropped by whoever awaits it, the fetcher in an async context.
    let (fetcher, metrics) = self::fetcher(&settings(endpoint));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let extent = whole("key");
        let read = fetcher.read(&extent, |_| ready(Ok(())));
        let late = tokio::time::timeout(Duration::from_millis(100), read).await;
        assert!(late.is_err());
        let begin = Instant::now();
        drop(fetcher);
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    });
    assert_eq!(metrics.fetch.in_flight.get(), 0);
}

#[test]
fn the_last_clone_may_be_dropped_on_the_fetch_thread() {
    let (fetcher, _) = fetcher(&recipe::Fetch::default());
    let inner = fetcher.clone();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let task = fetcher.spawn(async move {
        gone.await.unwrap();
        drop(inner);
    });
    drop(fetcher);
    go.send(()).unwrap();
    // Done, or cancelled by the end of the runtime that it brought about: but no hang, no abort.
    drop(run(task));
}

#[test]
fn a_short_body_is_noticed_and_resumed_where_it_broke_off() {
    let bytes = pattern(10_000);
    let (heads, seen) = mpsc::sync_channel(10);
    let body = bytes.clone();
    let endpoint = raw(move |number, head, stream| {
        heads.send(head.to_owned()).unwrap();
        if number == 0 {
            let headers = [("content-length", "10000"), ("etag", "\"v1\"")];
            reply(stream, "200 OK", &headers, &body[..4000]);
        } else {
            let headers = [
                ("content-length", "6000"),
                ("content-range", "bytes 4000-9999/10000"),
                ("etag", "\"v1\""),
            ];
            reply(stream, "206 Partial Content", &headers, &body[4000..]);
        }
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint));
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), bytes);
    assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (2, 1));
    let heads: Vec<_> = seen.try_iter().collect();
    assert!(!heads[0].contains("range:"), "{}", heads[0]);
    assert!(heads[1].contains("range: bytes=4000-9999"), "{}", heads[1]);
    assert!(heads[1].contains("if-match: \"v1\""), "{}", heads[1]);
}

#[test]
fn without_a_version_a_short_body_is_read_anew() {
    let bytes = pattern(10_000);
    let body = bytes.clone();
    let endpoint = raw(move |number, head, stream| {
        assert!(!head.contains("range:"));
        let sent = if number < 2 { &body[..4000] } else { &body[..] };
        reply(stream, "200 OK", &[("content-length", "10000")], sent);
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint));
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), bytes);
    assert_eq!(metrics.fetch.retries.get(), 2);
}

#[test]
fn an_object_that_changes_between_attempts_is_an_error_not_a_mixture() {
    let endpoint = raw(|number, _, stream| {
        if number == 0 {
            let headers = [("content-length", "100"), ("etag", "\"v1\"")];
            reply(stream, "200 OK", &headers, &[1; 40]);
        } else {
            reply(stream, "412 Precondition Failed", &[("content-length", "0")], b"");
        }
    });
    let (fetcher, _) = fetcher(&settings(endpoint));
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Changed, 2), "{error}");

    // A store that does not know If-Match tells by the version.
    let endpoint = raw(|number, _, stream| {
        let version = if number == 0 { "\"v1\"" } else { "\"v2\"" };
        if number == 0 {
            reply(stream, "200 OK", &[("content-length", "100"), ("etag", version)], &[1; 40]);
        } else {
            let headers = [("content-range", "bytes 40-99/100"), ("etag", version)];
            reply(stream, "206 Partial Content", &headers, &[2; 60]);
        }
    });
    let (fetcher, _) = self::fetcher(&settings(endpoint));
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!(error.kind, FetchErrorKind::Changed, "{error}");
}

#[test]
fn a_busy_or_failing_store_is_asked_again() {
    for status in ["503 Slow Down", "500 Internal Server Error", "429 Too Many Requests"] {
        let endpoint = raw(move |number, _, stream| {
            if number == 0 {
                reply(stream, status, &[("content-length", "0")], b"");
            } else {
                reply(stream, "200 OK", &[("content-length", "4")], b"done");
            }
        });
        let (fetcher, metrics) = fetcher(&settings(endpoint));
        assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), "done", "{status}");
        assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (2, 1));
    }
}

#[test]
fn an_answer_to_another_range_is_never_taken() {
    for (status, range) in [
        ("200 OK", None),
        ("206 Partial Content", None),
        ("206 Partial Content", Some("bytes 0-9/100")),
        ("206 Partial Content", Some("bytes 10-29/100")),
    ] {
        let endpoint = raw(move |_, _, stream| {
            let mut headers = vec![("content-length", "10")];
            headers.extend(range.map(|range| ("content-range", range)));
            reply(stream, status, &headers, &[0; 10]);
        });
        let settings = recipe::Fetch { attempts: 2, ..settings(endpoint) };
        let (fetcher, _) = fetcher(&settings);
        let extent = Extent { object: object("key"), range: Some(10..20) };
        let error = fetch_error(fetcher.read_blocking(&extent));
        assert_eq!((error.kind, error.attempts), (FetchErrorKind::Transient, 2), "{range:?}");
    }
}

#[test]
fn a_store_that_falls_silent_is_given_up_after_the_read_timeout() {
    let endpoint = raw(|number, _, stream| {
        if number == 0 {
            reply(stream, "200 OK", &[("content-length", "100"), ("etag", "\"v\"")], &[7; 30]);
            std::mem::forget(stream.try_clone().unwrap());
        } else {
            let headers = [("content-range", "bytes 30-99/100"), ("etag", "\"v\"")];
            reply(stream, "206 Partial Content", &headers, &[7; 70]);
        }
    });
    let read_timeout = Duration::from_millis(200);
    let (fetcher, metrics) = fetcher(&recipe::Fetch { read_timeout, ..settings(endpoint) });
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), vec![7; 100]);
    assert_eq!(metrics.fetch.retries.get(), 1);
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

#[test]
fn a_blocking_read_on_the_fetch_thread_is_an_error_not_a_deadlock() {
    let (fetcher, _) = fetcher(&recipe::Fetch::default());
    let inner = fetcher.clone();
    let task = fetcher.spawn(async move { inner.read_blocking(&whole("key")) });
    assert!(matches!(run(task).unwrap(), Err(Error::Bug(_))));
}

/// Not a test: what the tests of credentials run in a process of its own, as credentials come from
/// the environment. Prints what became of each key.
#[test]
#[ignore = "run by other tests"]
fn read_with_the_credentials_of_the_environment() {
    #[expect(clippy::disallowed_methods, reason = "the parent process says it this way")]
    let given = |name| std::env::var(name).unwrap();
    let settings = recipe::Fetch { anonymous: false, ..settings(given("STOKER_TEST_ENDPOINT")) };
    let (fetcher, _) = fetcher(&settings);
    for key in given("STOKER_TEST_KEYS").split('\n') {
        let begin = Instant::now();
        match fetcher.read_blocking(&whole(key)) {
            Ok(bytes) => println!("read {}", String::from_utf8_lossy(&bytes)),
            Err(error) => println!("{:?} after {:?}: {error}", error, begin.elapsed()),
        }
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    }
}

fn read_with(endpoint: &str, keys: &[&str], environment: &[(&str, &str)]) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("read_with_the_credentials_of_the_environment")
        .env_clear()
        .env("STOKER_TEST_ENDPOINT", endpoint)
        .env("STOKER_TEST_KEYS", keys.join("\n"))
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn signed_requests_are_accepted_for_any_key_and_refused_with_a_wrong_secret() {
    let server = Server::start(&Config::default(), Backend::memory()).unwrap();
    let keys = ["plain.jpg", "a//b", "100% sure", "plus+and space", "ünïcode/日本語", "q?x=1&y#z"];
    for key in keys {
        server.put("bucket", key, key.to_owned()).unwrap();
    }
    let id = ("AWS_ACCESS_KEY_ID", "stoker");
    let secret = ("AWS_SECRET_ACCESS_KEY", "stoker-secret");
    let text = read_with(&server.endpoint(), &keys, &[id, secret]);
    for key in keys {
        assert!(text.contains(&format!("read {key}\n")), "{text}");
    }
    let wrong = ("AWS_SECRET_ACCESS_KEY", "not-the-right-one");
    let text = read_with(&server.endpoint(), &["plain.jpg"], &[id, wrong]);
    assert!(text.contains("Denied") && text.contains("SignatureDoesNotMatch"), "{text}");
    assert!(text.contains("check the secret key"), "{text}");
    assert!(!text.contains("not-the-right-one"), "{text}");
}

#[test]
fn without_credentials_the_error_comes_soon_and_says_what_to_set() {
    let server = Server::start(&Config::default(), Backend::memory()).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let metadata = format!("http://{}", silent.local_addr().unwrap());
    let environment = [("AWS_METADATA_ENDPOINT", metadata.as_str())];
    let text = read_with(&server.endpoint(), &["one", "two"], &environment);
    assert_eq!(text.matches("Unconfigured").count(), 2, "{text}");
    assert!(text.contains("AWS_ACCESS_KEY_ID") && text.contains("anonymous = true"), "{text}");
}
