//! What each fault does on the wire, seen by a client that knows nothing but TCP. One long file, as all
//! kinds share that client and are read beside each other.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stoker_s3::{Backend, Config, Fault, Faults, Operation, Rule, Server, Throttle};

const LENGTH: usize = 1000;

fn pattern() -> Vec<u8> {
    (0..LENGTH).map(|index| (index * 7 + index / 256) as u8).collect()
}

fn server(faults: Faults) -> Server {
    let config = Config { unsigned: true, faults, ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    server.put("bucket", "key", pattern()).unwrap();
    server
}

/// All requests meet this.
fn always(fault: Fault) -> Server {
    server(Faults { rules: vec![Rule::new(fault)], ..Faults::default() })
}

fn injected(server: &Server) -> Vec<(String, u64)> {
    server.injected().into_iter().collect()
}

fn once(name: &str) -> Vec<(String, u64)> {
    vec![(name.to_owned(), 1)]
}

struct Client(TcpStream);

/// What came.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    /// How the body ended, if not by its length.
    end: Option<ErrorKind>,
}

impl Client {
    fn new(server: &Server) -> Self {
        let stream =
            TcpStream::connect(server.endpoint().strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Answer, ErrorKind> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        self.0.write_all((head + "\r\n").as_bytes()).map_err(|error| error.kind())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).map_err(|error| error.kind())?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_lowercase(), value.to_owned())
        };
        let headers: BTreeMap<_, _> = lines.map(header).collect();
        let length = headers.get("content-length").map(|length| length.parse::<usize>().unwrap());
        let (mut body, mut end) = (Vec::new(), None);
        while length.is_none_or(|length| body.len() < length) && method != "HEAD" {
            let mut byte = [0];
            if let Err(error) = self.0.read_exact(&mut byte) {
                end = Some(error.kind());
                break;
            }
            body.push(byte[0]);
        }
        Ok(Answer { status, headers, body, end })
    }

    fn get(&mut self, headers: &[(&str, &str)]) -> Result<Answer, ErrorKind> {
        self.ask("GET", "/bucket/key", headers)
    }
}

fn get(server: &Server, headers: &[(&str, &str)]) -> Result<Answer, ErrorKind> {
    Client::new(server).get(headers)
}

const PART: [(&str, &str); 1] = [("range", "bytes=100-199")];

#[test]
fn a_server_without_faults_answers_as_the_tests_below_expect_it_not_to() {
    let server = server(Faults::default());
    let all = get(&server, &[]).unwrap();
    assert_eq!((all.status, all.body, all.end), (200, pattern(), None));
    let part = get(&server, &PART).unwrap();
    assert_eq!((part.status, &part.body[..], part.end), (206, &pattern()[100..200], None));
    assert_eq!(part.headers["content-range"], "bytes 100-199/1000");
    assert_eq!(injected(&server), []);
}

#[test]
fn connections_break_before_the_answer_and_in_the_body() {
    for (fault, kind) in [
        (Fault::Reset { at: None }, ErrorKind::ConnectionReset),
        (Fault::HangUp { at: None }, ErrorKind::UnexpectedEof),
    ] {
        let server = always(fault.clone());
        assert_eq!(get(&server, &[]).unwrap_err(), kind);
        assert_eq!(injected(&server), once(&fault.name()));
    }
    for (fault, kind) in [
        (Fault::Reset { at: Some(300) }, ErrorKind::ConnectionReset),
        (Fault::HangUp { at: Some(300) }, ErrorKind::UnexpectedEof),
    ] {
        let server = always(fault.clone());
        let answer = get(&server, &[]).unwrap();
        assert_eq!((answer.status, answer.end), (200, Some(kind)));
        assert_eq!(answer.headers["content-length"], "1000");
        assert_eq!(answer.body, pattern()[..300]);
        let part = get(&server, &PART).unwrap();
        assert_eq!((part.status, part.body.len()), (206, 99), "its last byte is missing");
        assert_eq!(injected(&server), [(fault.name().into_owned(), 2)]);
    }
}

#[test]
fn connections_are_refused_for_a_while() {
    let refuse = Fault::Refuse { lasts: Some(Duration::from_millis(500)) };
    let rule = Rule { requests: Some((1, 1)), ..Rule::new(refuse) };
    let server = server(Faults { rules: vec![rule], ..Faults::default() });
    let address = server.endpoint().strip_prefix("http://").unwrap().to_owned();
    assert_eq!(get(&server, &[]).unwrap_err(), ErrorKind::UnexpectedEof);
    let begin = Instant::now();
    let mut refused = 0;
    let stream = loop {
        match TcpStream::connect(&address) {
            Ok(stream) => break stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not come back");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(refused > 0);
    assert_eq!(Client(stream).get(&[]).unwrap().status, 200);
    assert_eq!(injected(&server), once("refuse"));
}

#[test]
fn the_store_answers_with_errors_in_the_words_of_s3() {
    let status = |status, retry_after, as_date| Fault::Status { status, retry_after, as_date };
    for (fault, code, words, name) in [
        (status(500, None, false), 500, "<Code>InternalError</Code>", "status-500"),
        (status(503, Some(3), false), 503, "<Code>SlowDown</Code>", "status-503"),
        (status(429, Some(3), true), 429, "<Code>TooManyRequests</Code>", "status-429"),
        (Fault::ErrorBody {}, 200, "<Error><Code>InternalError</Code>", "error-body"),
        (Fault::Expired { status: None }, 400, "<Code>ExpiredToken</Code>", "expired"),
        (Fault::Expired { status: Some(403) }, 403, "<Code>ExpiredToken</Code>", "expired"),
    ] {
        let server = always(fault.clone());
        let answer = get(&server, &[]).unwrap();
        let body = String::from_utf8(answer.body).unwrap();
        assert!(answer.status == code && body.contains(words), "{fault:?}: {body}");
        assert_eq!(answer.headers["content-type"], "application/xml");
        assert_eq!(injected(&server), once(name));
        let said = answer.headers.get("retry-after").map(String::as_str);
        match fault {
            Fault::Status { retry_after: Some(_), as_date: false, .. } => {
                assert_eq!(said, Some("3"));
            }
            // Tue, 29 Apr 2014 18:30:38 GMT
            Fault::Status { as_date: true, .. } => {
                let date = said.unwrap();
                assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
                assert_ne!(date, answer.headers["date"], "it is later than the answer");
            }
            _ => assert_eq!(said, None),
        }
    }
    let head = Client::new(&always(status(503, None, false))).ask("HEAD", "/bucket/key", &[]);
    assert_eq!(head.unwrap().status, 503);
}

#[test]
fn the_store_sends_elsewhere() {
    let redirect = |status| Fault::Redirect {
        status,
        region: Some("eu-west-1".into()),
        endpoint: Some("http://127.0.0.1:9/".into()),
    };
    let answer = get(&always(redirect(None)), &[]).unwrap();
    let body = String::from_utf8(answer.body).unwrap();
    assert!(answer.status == 301 && body.contains("<Code>PermanentRedirect</Code>"), "{body}");
    assert!(body.contains("<Endpoint>127.0.0.1:9/</Endpoint>"), "{body}");
    assert_eq!(answer.headers["x-amz-bucket-region"], "eu-west-1");
    assert_eq!(answer.headers["location"], "http://127.0.0.1:9/bucket/key");
    let answer = get(&always(redirect(Some(307))), &[]).unwrap();
    assert_eq!(answer.status, 307);
}

#[test]
fn ranges_are_answered_wrongly() {
    let wrong = always(Fault::WrongRange {});
    let answer = get(&wrong, &PART).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (206, &pattern()[100..200]));
    assert_eq!(answer.headers["content-range"], "bytes 200-299/1000");
    let none = always(Fault::NoRange {});
    let answer = get(&none, &PART).unwrap();
    assert_eq!((answer.status, answer.headers.get("content-range")), (206, None));
    let whole = always(Fault::WholeObject {});
    let answer = get(&whole, &PART).unwrap();
    assert_eq!((answer.status, answer.headers.get("content-range")), (200, None));
    assert_eq!(answer.body, pattern());
    for (server, name) in [(wrong, "wrong-range"), (none, "no-range"), (whole, "whole-object")] {
        assert_eq!(get(&server, &[]).unwrap().body, pattern());
        assert_eq!(injected(&server), once(name), "nothing happens to whole objects");
    }
}

#[test]
fn bodies_are_short_with_a_length_that_hides_it_and_without_one() {
    let told = always(Fault::Short { at: None, told: true });
    let answer = get(&told, &[]).unwrap();
    assert_eq!(answer.headers["content-length"], "500");
    assert_eq!((answer.body, answer.end), (pattern()[..500].to_vec(), None));
    let untold = always(Fault::Short { at: Some(300), told: false });
    let answer = get(&untold, &[]).unwrap();
    assert_eq!(answer.headers.get("content-length"), None);
    assert_eq!(answer.headers.get("transfer-encoding"), None);
    assert_eq!(
        (answer.body, answer.end),
        (pattern()[..300].to_vec(), Some(ErrorKind::UnexpectedEof))
    );
    assert_eq!((injected(&told), injected(&untold)), (once("short-told"), once("short-untold")));
}

#[test]
fn bodies_stall_and_drip() {
    let stall = always(Fault::Stall { at: Some(100), lasts: Some(Duration::from_millis(300)) });
    let begin = Instant::now();
    assert_eq!(get(&stall, &[]).unwrap().body, pattern());
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    assert_eq!(injected(&stall), once("stall"));

    let silent = always(Fault::Stall { at: Some(100), lasts: None });
    let mut client = Client::new(&silent);
    client.0.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let answer = client.get(&[]).unwrap();
    assert_eq!((answer.body, answer.end), (pattern()[..100].to_vec(), Some(ErrorKind::WouldBlock)));

    let drip = always(Fault::Drip { rate: 5000 });
    let begin = Instant::now();
    assert_eq!(get(&drip, &[]).unwrap().body, pattern());
    assert!(begin.elapsed() >= Duration::from_millis(190), "{:?}", begin.elapsed());
    assert_eq!(injected(&drip), once("drip"));
}

#[test]
fn bodies_are_altered_and_keep_their_length() {
    let flip = always(Fault::Flip { at: Some(123) });
    let answer = get(&flip, &[]).unwrap();
    let mut expected = pattern();
    expected[123] ^= 0xFF;
    assert_eq!((answer.body, answer.headers["content-length"].as_str()), (expected, "1000"));
    let repeat = always(Fault::RepeatHalf {});
    let answer = get(&repeat, &[]).unwrap();
    assert_eq!(answer.body, [&pattern()[..500], &pattern()[..500]].concat());
    let answer = get(&repeat, &[("range", "bytes=0-2")]).unwrap();
    assert_eq!(answer.body, [pattern()[0], pattern()[0], pattern()[2]]);
    assert_eq!(
        (injected(&flip), injected(&repeat)),
        (once("flip"), vec![("repeat-half".into(), 2)])
    );
}

/// The same through files and pacing, where bodies come in many pieces.
#[test]
fn damage_finds_its_byte_in_bodies_of_many_pieces() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let bytes: Vec<u8> =
        (0..3_000_000_usize).map(|index| (index * 7 + index / 256) as u8).collect();
    std::fs::write(root.path().join("bucket/key"), &bytes).unwrap();
    let half = bytes.len() / 2;
    let mut flipped = bytes.clone();
    flipped[2_500_000] ^= 0xFF;
    for (fault, expected) in [
        (Fault::Flip { at: Some(2_500_000) }, flipped),
        (Fault::RepeatHalf {}, [&bytes[..half], &bytes[..half]].concat()),
        (Fault::HangUp { at: Some(1_200_000) }, bytes[..1_200_000].to_vec()),
    ] {
        let faults = Faults { rules: vec![Rule::new(fault.clone())], ..Faults::default() };
        let config = Config { unsigned: true, faults, ..Config::default() };
        let server = Server::start(&config, Backend::folder(root.path())).unwrap();
        let mut stream = Client::new(&server).0;
        stream.write_all(b"GET /bucket/key HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let head = all.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        assert!(all[head..] == expected[..], "{fault:?}: {} bytes", all.len() - head);
    }
}

#[test]
fn an_object_is_replaced_at_some_part_and_stays_so() {
    let replaced = Rule { bytes: Some((500, 999)), ..Rule::new(Fault::Replaced {}) };
    let server = server(Faults { rules: vec![replaced], ..Faults::default() });
    let etag = get(&server, &PART).unwrap().headers["etag"].clone();
    let pinned = |range| get(&server, &[("range", range), ("if-match", &etag)]).unwrap();
    assert_eq!(pinned("bytes=100-199").status, 206);
    assert_eq!(pinned("bytes=500-599").status, 412);
    assert_eq!(pinned("bytes=100-199").status, 412);
    assert_ne!(get(&server, &[]).unwrap().headers["etag"], etag);
    let list = Client::new(&server).ask("GET", "/bucket?list-type=2", &[]).unwrap();
    let list = String::from_utf8(list.body).unwrap();
    assert!(list.contains("-replaced"), "{list}");
    assert_eq!(injected(&server), once("replaced"));
}

/// All keys of a listing, page by page, as a client that believes everything collects them.
fn listed(client: &mut Client) -> Result<Vec<String>, u16> {
    let mut keys = Vec::new();
    let mut token = String::new();
    loop {
        let more = if token.is_empty() { "" } else { "&continuation-token=" };
        let page = client.ask("GET", &format!("/bucket?list-type=2{more}{token}"), &[]).unwrap();
        if page.status != 200 {
            return Err(page.status);
        }
        let text = String::from_utf8(page.body).unwrap();
        let between = |open: &str, close: &str| -> Vec<String> {
            let parts = text.split(open).skip(1).map(|rest| rest.split(close).next().unwrap());
            parts.map(str::to_owned).collect()
        };
        keys.extend(between("<Key>", "</Key>"));
        match between("<NextContinuationToken>", "<").pop() {
            Some(next) => token = next,
            None => return Ok(keys),
        }
    }
}

#[test]
fn listings_fail_at_a_later_page_and_repeat_a_page() {
    let of = |fault| Faults {
        rules: vec![Rule {
            operations: vec![Operation::List],
            later_pages: true,
            requests: Some((1, 1)),
            ..Rule::new(fault)
        }],
        page_size: Some(2),
        ..Faults::default()
    };
    let server = server(of(Fault::Status { status: 500, retry_after: None, as_date: false }));
    for key in ["a", "b", "c", "d"] {
        server.put("bucket", key, "x").unwrap();
    }
    let mut client = Client::new(&server);
    // Each page behind the first fails once.
    assert_eq!(listed(&mut client), Err(500));
    assert_eq!(listed(&mut client), Err(500));
    assert_eq!(listed(&mut client).unwrap(), ["a", "b", "c", "d", "key"]);
    assert_eq!(injected(&server), [("status-500".to_owned(), 2)]);
    server.set_faults(&of(Fault::RepeatPage {})).unwrap();
    assert_eq!(listed(&mut client).unwrap(), ["a", "b", "a", "b", "c", "d", "c", "d", "key"]);
    assert_eq!(injected(&server), [("repeat-page".to_owned(), 2)]);
}

#[test]
fn connections_end_when_they_are_idle_and_after_their_last_request() {
    let idle = server(Faults { idle: Some(Duration::from_millis(200)), ..Faults::default() });
    let mut client = Client::new(&idle);
    assert_eq!(client.get(&[]).unwrap().status, 200);
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "closed in order");
    assert_eq!(injected(&idle), once("idle-close"));

    let two = server(Faults { requests_per_connection: Some(2), ..Faults::default() });
    let mut client = Client::new(&two);
    assert_eq!(client.get(&[]).unwrap().headers.get("connection"), None);
    assert_eq!(client.get(&[]).unwrap().headers["connection"], "close");
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
    assert_eq!(injected(&two), once("close-after"));
}

#[test]
fn a_store_that_is_asked_for_too_much_says_so() {
    let throttle = Throttle { rate: 3.0, depth: 0, doubles_after: None };
    let server = server(Faults { throttle: Some(throttle), ..Faults::default() });
    let mut client = Client::new(&server);
    let statuses: Vec<u16> = (0..20).map(|_| client.get(&[]).unwrap().status).collect();
    assert_eq!(statuses[..3], [200, 200, 200]);
    let refused = statuses.iter().filter(|status| **status == 503).count() as u64;
    assert!(refused > 0, "{statuses:?}");
    assert_eq!(injected(&server), [("slow-down".to_owned(), refused)]);
}

#[test]
fn keys_are_served_however_odd_they_are() {
    let server = server(Faults::default());
    for (key, asked) in [
        ("a b", "a%20b"),
        ("a//b", "a//b"),
        ("100%", "100%25"),
        ("a%20b", "a%2520b"),
        ("a+b", "a+b"),
        ("a+b ", "a%2Bb%20"),
        ("ü/日本", "%C3%BC/%E6%97%A5%E6%9C%AC"),
        ("a/../b", "a/../b"),
        ("../b", "%2E%2E/b"),
        ("a/./b", "a/./b"),
        ("q?x=1", "q%3Fx=1"),
    ] {
        server.put("bucket", key, key.to_owned()).unwrap();
        let answer = Client::new(&server).ask("GET", &format!("/bucket/{asked}"), &[]).unwrap();
        assert_eq!((answer.status, answer.body), (200, key.as_bytes().to_vec()), "{key}");
    }
}

#[test]
fn a_test_marks_its_requests_by_a_header() {
    let marked = Rule {
        header: Some(("x-test".into(), "hit".into())),
        ..Rule::new(Fault::Status { status: 500, retry_after: None, as_date: false })
    };
    let server = server(Faults { rules: vec![marked], ..Faults::default() });
    assert_eq!(get(&server, &[("x-test", "hit")]).unwrap().status, 500);
    assert_eq!(get(&server, &[("x-test", "miss")]).unwrap().status, 200);
    assert_eq!(get(&server, &[]).unwrap().status, 200);
}

#[test]
fn what_did_not_happen_is_not_counted() {
    let server = always(Fault::Flip { at: None });
    let missing = Client::new(&server).ask("GET", "/bucket/missing", &[]).unwrap();
    assert_eq!(missing.status, 404);
    server.put("bucket", "empty", "").unwrap();
    assert_eq!(Client::new(&server).ask("GET", "/bucket/empty", &[]).unwrap().body, b"");
    assert_eq!(Client::new(&server).ask("HEAD", "/bucket/key", &[]).unwrap().status, 200);
    assert_eq!(injected(&server), []);
    let error = server.set_faults(&Faults {
        rules: vec![Rule { share: -1.0, ..Rule::new(Fault::RepeatHalf {}) }],
        ..Faults::default()
    });
    assert!(error.unwrap_err().to_string().contains("rule 1: the share is -1"));
}
