//! Servers that misbehave.

use super::*;

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
fn an_error_names_the_request_as_the_store_does() {
    let endpoint = raw(|number, head, stream| {
        let ids = [("x-amz-request-id", "4442587FB7D0A2F9"), ("x-amz-id-2", "vlR7PnpV2Ce81l0=")];
        if head.contains("/cut") {
            // The answer is good, its body is not.
            reply(stream, "200 OK", &[ids[0], ("content-length", "100")], &[0; 3][..number % 3]);
        } else {
            reply(stream, "403 Forbidden", &[ids[0], ids[1], ("content-length", "0")], b"");
        }
    });
    let settings = recipe::Fetch { attempts: 2, ..settings(endpoint) };
    let (fetcher, _) = fetcher(&settings);
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!(error.request_id.as_deref(), Some("4442587FB7D0A2F9 vlR7PnpV2Ce81l0="));
    let text = error.to_string();
    let named = "(HTTP 403, request 4442587FB7D0A2F9 vlR7PnpV2Ce81l0=)";
    assert!(text.contains(named), "{text}");
    let error = fetch_error(fetcher.read_blocking(&whole("cut")));
    assert!(error.to_string().contains("(request 4442587FB7D0A2F9) after 2 attempts"), "{error}");
}

#[test]
fn a_read_ends_at_its_deadline_however_many_attempts_there_may_be() {
    let endpoint = raw(|_, _, stream| {
        reply(stream, "500 Internal Server Error", &[("content-length", "0")], b"");
    });
    let deadline = Duration::from_millis(300);
    let (fetcher, metrics) =
        fetcher(&recipe::Fetch { attempts: 100, deadline, ..settings(endpoint) });
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.status), (FetchErrorKind::Transient, Some(500)), "{error}");
    assert!(error.reason.ends_with("fetch.deadline of 300ms is over"), "{error}");
    assert!((1..100).contains(&error.attempts), "{error}");
    assert_eq!(metrics.fetch.requests.get(), u64::from(error.attempts));
}

#[test]
fn the_wait_that_a_busy_store_asks_for_must_end_before_the_deadline() {
    let endpoint = raw(|_, _, stream| {
        let headers = [("content-length", "0"), ("retry-after", "30")];
        reply(stream, "503 Slow Down", &headers, b"");
    });
    let deadline = Duration::from_secs(20);
    let (fetcher, metrics) = fetcher(&recipe::Fetch { deadline, ..settings(endpoint) });
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert!(error.reason.contains("fetch.deadline of 20s"), "{error}");
    assert_eq!((error.attempts, metrics.fetch.throttled.get()), (1, 1));
}
