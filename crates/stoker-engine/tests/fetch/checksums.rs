//! Checksums that a store tells.

use stoker_engine::metrics::Counter;

use super::*;

fn checked(endpoint: String) -> recipe::Fetch {
    recipe::Fetch { checksum: true, attempts: 3, ..settings(endpoint) }
}

/// Reads that were right, wrong, and not told of.
fn counts(metrics: &Metrics) -> [u64; 3] {
    let fetch = &metrics.fetch;
    [&fetch.checksums_right, &fetch.checksums_wrong, &fetch.checksums_lacking].map(Counter::get)
}

#[test]
fn what_is_read_whole_is_held_against_the_checksum_of_the_store() {
    let server = server(&Config::default());
    let large = pattern(20 << 20);
    server.put("bucket", "small", large.slice(..100_000)).unwrap();
    server.put("bucket", "large", large.clone()).unwrap();
    server.put("bucket", "empty", "").unwrap();
    let (fetcher, metrics) = fetcher(&checked(server.endpoint()));
    assert_eq!(fetcher.read_blocking(&whole("small")).unwrap(), large.slice(..100_000));
    assert!(fetcher.read_blocking(&whole("large")).unwrap() == large, "in parts");
    assert_eq!(fetcher.read_blocking(&whole("empty")).unwrap(), "");
    assert_eq!(counts(&metrics), [3, 0, 0]);
    for range in [0..10, 0..20 << 20] {
        let part = Extent { object: object("large"), range: Some(range) };
        fetcher.read_blocking(&part).unwrap();
    }
    assert_eq!(counts(&metrics), [3, 0, 2], "none is told of parts");
    assert_eq!(metrics.fetch.retries.get(), 0);
}

/// CRC-32C and SHA-256 of `123456789`.
const TOLD: [(&str, &str); 2] = [
    ("x-amz-checksum-crc32c", "4waSgw=="),
    ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
];

#[test]
fn a_flipped_byte_of_the_right_length_is_found_and_read_again() {
    for told in TOLD {
        let endpoint = raw(move |number, head, stream| {
            assert!(head.contains("x-amz-checksum-mode: enabled"), "{head}");
            let body = if number == 0 { b"123456780" } else { b"123456789" };
            let headers = [("content-length", "9"), ("etag", "\"v\""), told];
            reply(stream, "200 OK", &headers, body);
        });
        let (fetcher, metrics) = fetcher(&checked(endpoint));
        assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), "123456789", "{told:?}");
        assert_eq!((counts(&metrics), metrics.fetch.retries.get()), ([1, 1, 0], 1), "{told:?}");
    }
}

#[test]
fn an_object_that_stays_damaged_is_an_error_that_says_so() {
    let endpoint = raw(|_, _, stream| {
        reply(stream, "200 OK", &[("content-length", "9"), TOLD[0]], b"12345678X");
    });
    let (fetcher, metrics) = fetcher(&checked(endpoint));
    let error = fetch_error(fetcher.read_blocking(&whole("key")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Transient, 3), "{error}");
    assert!(error.reason.contains("checksum that the store tells, Crc32C 4waSgw=="), "{error}");
    assert!(error.hint.unwrap().contains("damaged in the store"));
    assert_eq!((error.uri.as_str(), counts(&metrics)), ("s3://bucket/key", [0, 3, 0]));
}

#[test]
fn a_body_that_came_in_pieces_is_checked_as_a_whole() {
    let endpoint = raw(|number, head, stream| {
        if number == 0 {
            let headers = [("content-length", "9"), ("etag", "\"v\""), TOLD[0]];
            reply(stream, "200 OK", &headers, b"1234");
        } else {
            assert!(!head.contains("x-amz-checksum-mode"), "of a part there is none: {head}");
            let range = ("content-range", "bytes 4-8/9");
            reply(stream, "206 Partial Content", &[("etag", "\"v\""), range], b"56789");
        }
    });
    let (fetcher, metrics) = fetcher(&checked(endpoint));
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), "123456789");
    assert_eq!(counts(&metrics), [1, 0, 0]);
}

/// As the documentation says.
#[test]
fn without_checksums_a_flipped_byte_of_the_right_length_passes() {
    let endpoint = raw(|_, head, stream| {
        assert!(!head.contains("x-amz-checksum-mode"), "{head}");
        reply(stream, "200 OK", &[("content-length", "9"), TOLD[0]], b"12345678X");
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint));
    assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), "12345678X");
    assert_eq!((counts(&metrics), metrics.fetch.retries.get()), ([0; 3], 0));
}

#[test]
fn where_the_store_tells_no_checksum_the_read_is_counted() {
    for told in [None, Some(("x-amz-checksum-type", "COMPOSITE"))] {
        let endpoint = raw(move |_, _, stream| {
            let mut headers = vec![("content-length", "9")];
            headers.extend(told.into_iter().chain(told.map(|_| TOLD[0])));
            reply(stream, "200 OK", &headers, b"12345678X");
        });
        let (fetcher, metrics) = fetcher(&checked(endpoint));
        assert_eq!(fetcher.read_blocking(&whole("key")).unwrap(), "12345678X");
        assert_eq!(counts(&metrics), [0, 0, 1]);
    }
}
