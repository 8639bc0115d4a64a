//! Large reads, in parts.

use std::ops::Range;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

/// What a request asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    range: Option<Range<usize>>,
    version: Option<String>,
}

/// A server of one object that answers each request on a thread of its own: what was asked for, and
/// what to answer with, by the number of the request.
struct Ranges {
    endpoint: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// What is answered: the version, the bytes that are sent of those asked for, and the size that is
/// told.
#[derive(Clone)]
struct Answer {
    version: Option<&'static str>,
    cut: usize,
    size: usize,
}

fn ranges(
    bytes: Bytes,
    answer: impl Fn(usize, &Asked) -> Answer + Send + Sync + 'static,
) -> Ranges {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (asked, answer) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::new(answer));
    let log = Arc::clone(&asked);
    let serve = move || {
        for stream in listener.incoming() {
            let (log, answer, bytes) = (Arc::clone(&log), Arc::clone(&answer), bytes.clone());
            let one = move || serve_one(&mut stream.unwrap(), &bytes, &log, &*answer);
            std::thread::Builder::new().spawn(one).unwrap();
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    Ranges { endpoint, asked }
}

fn serve_one(
    stream: &mut TcpStream,
    bytes: &Bytes,
    log: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(usize, &Asked) -> Answer,
) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.map(str::to_owned)
    };
    let range = header("range").map(|range| {
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        first.parse().unwrap()..last.parse::<usize>().unwrap() + 1
    });
    let asked = Asked { range, version: header("if-match") };
    let number = {
        let mut log = log.lock().unwrap();
        log.push(asked.clone());
        log.len() - 1
    };
    let Answer { version, cut, size } = answer(number, &asked);
    let range = asked.range.clone().unwrap_or(0..bytes.len());
    let status = match (&asked.range, &asked.version, version) {
        (_, Some(wanted), Some(version)) if wanted != version => "412 Precondition Failed",
        (Some(_), ..) => "206 Partial Content",
        (None, ..) => "200 OK",
    };
    let mut answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    if let Some(version) = version {
        write!(answer, "etag: {version}\r\n").unwrap();
    }
    let body = if status.starts_with("412") {
        answer += "content-length: 0\r\n";
        Bytes::new()
    } else {
        let (first, last) = (range.start, range.end - 1);
        write!(answer, "content-length: {}\r\n", range.len()).unwrap();
        write!(answer, "content-range: bytes {first}-{last}/{size}\r\n").unwrap();
        bytes.slice(range.start..range.end - cut.min(range.len()))
    };
    // A client that has had enough hangs up.
    let sent = stream
        .write_all((answer + "\r\n").as_bytes())
        .and_then(|()| if head.starts_with("head") { Ok(()) } else { stream.write_all(&body) });
    drop(sent);
}

fn part(start: usize, end: usize) -> Extent {
    Extent { object: object("key"), range: Some(start as u64..end as u64) }
}

#[test]
fn large_reads_come_in_parts_and_give_the_same_bytes() {
    let server = server(&Config::default());
    let bytes = pattern(40 * MIB);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let sizes = (15 * MIB..40 * MIB, any::<prop::sample::Index>(), 1_u32..9);
    runner
        .run(&sizes, |(size, start, concurrency)| {
            server.put("bucket", "key", bytes.slice(..size)).unwrap();
            let settings = recipe::Fetch { concurrency, ..settings(server.endpoint()) };
            let (fetcher, metrics) = fetcher(&settings);
            let all = fetcher.read_blocking(&whole("key")).unwrap();
            prop_assert!(all == bytes.slice(..size));
            let start = start.index(size - 10 * MIB);
            let some = fetcher.read_blocking(&part(start, size)).unwrap();
            prop_assert!(some == bytes.slice(start..size));
            let parts = |size: usize| if size > 16 * MIB { size / (8 * MIB) } else { 0 };
            let expected = (parts(size) + parts(size - start)) as u64;
            prop_assert_eq!(metrics.fetch.split_parts.get(), expected);
            prop_assert_eq!(metrics.fetch.retries.get(), 0);
            prop_assert_eq!(metrics.fetch.in_flight.get(), 0);
            Ok(())
        })
        .unwrap();
}

#[test]
fn each_part_is_tried_again_by_itself_and_of_the_version_of_the_first() {
    let bytes = pattern(33 * MIB);
    for version in [Some("\"v1\""), None] {
        // Each part breaks off once, at another byte.
        let part_bytes = 33 * MIB / 4;
        let met = Mutex::new(std::collections::BTreeSet::new());
        let server = ranges(bytes.clone(), move |_, asked| {
            let range = asked.range.clone().unwrap();
            let is_first = range.len() == part_bytes && met.lock().unwrap().insert(range.start);
            let cut = if is_first { 1_000_000 + range.start / part_bytes * 12_345 } else { 0 };
            Answer { version, cut, size: 33 * MIB }
        });
        let (fetcher, metrics) = fetcher(&settings(server.endpoint.clone()));
        let admitted = Mutex::new(Vec::new());
        let all = part(0, 33 * MIB);
        let read = fetcher.read(&all, |size| {
            admitted.lock().unwrap().push(size);
            ready(Ok(()))
        });
        assert!(run(read).unwrap() == bytes);
        assert_eq!(*admitted.lock().unwrap(), [33 << 20], "memory is had once, for the whole");
        assert_eq!((metrics.fetch.requests.get(), metrics.fetch.retries.get()), (8, 4));
        assert_eq!(metrics.fetch.split_parts.get(), 4);
        let asked = server.asked.lock().unwrap().clone();
        assert_eq!(asked[0].version, None);
        assert!(asked[1..].iter().all(|it| it.version.as_deref() == version), "{asked:?}");
        let begins: Vec<_> = asked.iter().map(|it| it.range.clone().unwrap().start).collect();
        let begun = begins.iter().filter(|begin| *begin % part_bytes == 0).count();
        // Without a version nobody knows what the rest of a part would belong to.
        assert_eq!(begun, if version.is_some() { 4 } else { 8 }, "{begins:?}");
    }
}

#[test]
fn of_a_whole_object_the_first_answer_is_read_as_far_as_its_part_goes() {
    let bytes = pattern(25 * MIB);
    let version = Some("\"v1\"");
    let server = ranges(bytes.clone(), move |_, _| Answer { version, cut: 0, size: 25 * MIB });
    let (fetcher, metrics) = fetcher(&settings(server.endpoint.clone()));
    assert!(fetcher.read_blocking(&whole("key")).unwrap() == bytes);
    let asked = server.asked.lock().unwrap().clone();
    assert_eq!(asked[0].range, None);
    let mut others: Vec<_> = asked[1..].iter().map(|it| it.range.clone().unwrap()).collect();
    others.sort_by_key(|range| range.start);
    let third = (25 * MIB).div_ceil(3);
    assert_eq!((others.len(), others[0].start, others[1].end), (2, third, 25 * MIB));
    assert_eq!(metrics.room(Room::Fetch).bytes.get(), 25 << 20, "nothing is read twice");
}

#[test]
fn parts_of_different_versions_are_an_error_that_names_both() {
    // The object is replaced after the first answer, in a store that knows If-Match, and in one that
    // tells versions alone.
    let bytes = pattern(20 * MIB);
    let answer = |number, _: &_| {
        let version = Some(if number == 0 { "\"v1\"" } else { "\"v2\"" });
        Answer { version, cut: 0, size: 20 * MIB }
    };
    let server = ranges(bytes.clone(), answer);
    let (fetcher, _) = fetcher(&settings(server.endpoint));
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.status), (FetchErrorKind::Changed, Some(412)), "{error}");
    assert!(error.reason.contains("it was version \"v1\" when"), "{error}");
    assert!(error.reason.ends_with("and is \"v2\" now"), "{error}");
    assert!(error.hint.unwrap().contains("index it again"));

    // A store without versions tells by the size.
    let server = ranges(bytes, |number, _| {
        let size = 20 * MIB + usize::from(number > 0);
        Answer { version: None, cut: 0, size }
    });
    let (fetcher, _) = super::fetcher(&settings(server.endpoint));
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!(error.kind, FetchErrorKind::Changed, "{error}");
    assert!(error.reason.contains("has 20971521 bytes now, and had 20971520"), "{error}");
}

#[test]
fn a_shard_stays_the_version_that_it_was_first_read_as() {
    let bytes = pattern(1000);
    let answer = |number, _: &_| {
        let version = Some(if number < 2 { "\"v1\"" } else { "\"v2\"" });
        Answer { version, cut: 0, size: 1000 }
    };
    let server = ranges(bytes.clone(), answer);
    let (fetcher, metrics) = fetcher(&settings(server.endpoint));
    for range in [0..10, 500..600] {
        let read = fetcher.read_blocking(&part(range.start, range.end)).unwrap();
        assert_eq!(read, bytes.slice(range));
    }
    let error = fetch_error(fetcher.read_blocking(&part(20, 30)));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Changed, 1), "{error}");
    assert!(error.reason.contains("was version \"v1\" when it was first read, and is \"v2\" now"));
    assert_eq!((error.uri.as_str(), error.range), ("s3://bucket/key", Some(20..30)));
    assert_eq!(metrics.fetch.retries.get(), 0);
    // What is read whole depends on nothing else.
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), bytes);
    // Whoever asks what the object is begins anew.
    fetcher.stat_blocking(&object("key")).unwrap();
    assert_eq!(fetcher.read_blocking(&part(20, 30)).unwrap(), bytes.slice(20..30));
}
