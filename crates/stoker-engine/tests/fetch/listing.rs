//! Listings, many sizes at once, and readers that jump.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stoker_engine::error::FetchErrorKind;
use stoker_engine::recipe;
use stoker_engine::sample::{Location, Scheme};
use stoker_s3::{Config, Fault, Faults, Rule};

use super::{fetch_error, fetcher, object, pattern, raw, reply, server, settings};

fn prefix(key: &str) -> Location {
    (*object(key)).clone()
}

#[test]
fn a_listing_has_every_object_of_the_prefix_with_its_size_and_version() {
    let server = server(&Config::default());
    for number in 0..2500 {
        let key = format!("shards/train-{number:04}.tar");
        server.put("bucket", &key, vec![0_u8; number % 7]).unwrap();
    }
    for other in ["shards/test-0.tar", "shards", "shards/train/x&y <1>.tar", "zzz"] {
        server.put("bucket", other, "x").unwrap();
    }
    let (fetcher, metrics) = fetcher(&settings(server.endpoint()));
    let found = fetcher.list_blocking(&prefix("shards/train-")).unwrap();
    assert_eq!(found.len(), 2500);
    assert_eq!(metrics.fetch.requests.get(), 3, "a thousand a page");
    for (number, (location, info)) in found.iter().enumerate() {
        assert_eq!(location.to_string(), format!("s3://bucket/shards/train-{number:04}.tar"));
        assert_eq!(info.size, number as u64 % 7);
    }
    let objects: Vec<_> = found.iter().take(40).map(|it| Arc::new(it.0.clone())).collect();
    let asked = fetcher.stat_all_blocking(&objects).unwrap();
    let listed: Vec<_> = found.iter().take(40).map(|it| it.1.clone()).collect();
    assert_eq!(asked, listed, "a version is the same listed and asked for");
    let odd = fetcher.list_blocking(&prefix("shards/train/")).unwrap();
    assert_eq!(odd[0].0.key, "shards/train/x&y <1>.tar");
    assert_eq!(fetcher.list_blocking(&prefix("none")).unwrap(), []);
    assert_eq!(fetcher.list_blocking(&prefix("")).unwrap().len(), 2504);
    assert_eq!(metrics.fetch.in_flight.get(), 0);
}

#[test]
fn a_listing_is_tried_again_and_its_refusal_named() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let endpoint = raw(move |_, head, stream| {
        assert!(head.starts_with("get /bucket?list-type=2&prefix=a%2fb%20c%26"), "{head}");
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => reply(stream, "503 Slow Down", &[], b""),
            1 => reply(stream, "200 OK", &[], b"<ListBucketResult><Contents>"),
            _ => {
                let body = b"<ListBucketResult><Contents><Key>a/b c&amp;d</Key><Size>3</Size>\
                             <ETag>\"x\"</ETag></Contents></ListBucketResult>";
                reply(stream, "200 OK", &[("content-length", &body.len().to_string())], body);
            }
        }
    });
    let (fetcher, metrics) = fetcher(&settings(endpoint));
    let found = fetcher.list_blocking(&prefix("a/b c&")).unwrap();
    assert_eq!((found.len(), found[0].0.key.as_str()), (1, "a/b c&d"));
    assert_eq!(metrics.fetch.retries.get(), 2);

    let denied = raw(|_, _, stream| {
        reply(stream, "403 Forbidden", &[], b"<Error><Code>AccessDenied</Code></Error>");
    });
    let (fetcher, _) = super::fetcher(&settings(denied));
    let error = fetch_error(fetcher.list_blocking(&prefix("data/")));
    assert_eq!((error.kind, error.uri.as_str()), (FetchErrorKind::Denied, "s3://bucket/data/"));
}

/// To end where a page comes twice would lose what stands behind it.
#[test]
fn a_page_that_comes_twice_neither_ends_a_listing_nor_doubles_it() {
    let repeated = |share| Faults {
        page_size: Some(2),
        rules: vec![Rule { share, ..Rule::new(Fault::RepeatPage {}) }],
        ..Faults::default()
    };
    let server = server(&Config { faults: repeated(0.3), ..Config::default() });
    let keys: Vec<String> = (0..20).map(|number| format!("shard-{number:02}")).collect();
    for key in &keys {
        server.put("bucket", key, "x").unwrap();
    }
    let (fetcher, metrics) = fetcher(&settings(server.endpoint()));
    let listed = fetcher.list_blocking(&prefix("shard-")).unwrap();
    assert_eq!(listed.into_iter().map(|(location, _)| location.key).collect::<Vec<_>>(), keys);
    let repeated_pages = server.injected()["repeat-page"];
    assert!(repeated_pages > 0 && metrics.fetch.retries.get() == repeated_pages);

    server.set_faults(&repeated(1.0)).unwrap();
    let (fetcher, _) = self::fetcher(&recipe::Fetch { attempts: 2, ..settings(server.endpoint()) });
    let error = fetch_error(fetcher.list_blocking(&prefix("shard-")));
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Transient, 2), "{error}");
}

#[test]
fn what_has_no_listings_says_what_to_do_instead() {
    let (fetcher, _) = fetcher(&settings("http://127.0.0.1:1".into()));
    for scheme in [Scheme::Https, Scheme::File] {
        let place = Location { scheme, authority: "example.com".into(), key: "a/".into() };
        let error = fetch_error(fetcher.list_blocking(&place));
        assert_eq!(error.kind, FetchErrorKind::Forbidden);
        assert!(error.hint.unwrap().contains("with braces such as {000..127}"));
    }
}

#[test]
fn the_first_of_many_objects_that_is_missing_is_named() {
    let server = server(&Config::default());
    server.put("bucket", "a", "1").unwrap();
    server.put("bucket", "c", "1").unwrap();
    let (fetcher, _) = fetcher(&settings(server.endpoint()));
    let error = fetch_error(fetcher.stat_all_blocking(&["a", "b", "c"].map(object)));
    assert_eq!((error.kind, error.uri.as_str()), (FetchErrorKind::NotFound, "s3://bucket/b"));
    assert_eq!(fetcher.stat_all_blocking(&[]).unwrap(), []);
}

/// Reads pieces of an object between jumps; the bytes that were asked for.
fn jumped(jumps: &[(usize, u64)], at: &Arc<Location>, of: &[u8]) -> u64 {
    let server = server(&Config::default());
    server.put("bucket", "large", of.to_vec()).unwrap();
    let (fetcher, metrics) = fetcher(&settings(server.endpoint()));
    let mut reader = fetcher.reader(at).unwrap();
    let mut place = 0;
    for (read, skip) in jumps {
        let mut piece = vec![0; *read];
        reader.read_exact(&mut piece).unwrap();
        assert_eq!(piece, of[place..place + read], "at {place}");
        reader.skip(*skip).unwrap();
        place += read + *skip as usize;
    }
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest == of[place.min(of.len())..], "the rest behind {place}");
    drop(reader);
    metrics.room(stoker_engine::metrics::Room::Fetch).bytes.get()
}

#[test]
fn a_reader_jumps_over_what_nobody_wants() {
    let bytes = pattern(40 << 20);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    std::fs::write(&path, &bytes).unwrap();
    let key = path.to_str().unwrap().to_owned();
    let local = Arc::new(Location { scheme: Scheme::File, authority: String::new(), key });
    for place in [object("large"), local] {
        // Nothing is skipped, little, far, within what is there already, to the end and beyond.
        jumped(&[(10, 0), (1000, 5), (70_000, 100_000)], &place, &bytes);
        let far = jumped(&[(1000, 30 << 20), (1000, 6 << 20)], &place, &bytes);
        assert!(far < 30 << 20, "{far} bytes were asked for");
        jumped(&[(100, (40 << 20) - 100)], &place, &bytes);
        jumped(&[(100, 50 << 20)], &place, &bytes);
        jumped(&[(0, 1), (0, 2 << 20), (1, 2 << 20), (3, u64::MAX / 2)], &place, &bytes);
    }
}
