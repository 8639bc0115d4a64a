//! Addresses read as people write them.

use proptest::prelude::*;

use crate::sample::{Location, Scheme};

fn parse(text: &str) -> Location {
    Location::parse(text).unwrap_or_else(|flaw| panic!("{text}: {flaw}"))
}

#[test]
fn schemes_buckets_and_keys_are_told_apart() {
    for (text, scheme, authority, key) in [
        ("s3://bucket/a/b.jsonl", Scheme::S3, "bucket", "a/b.jsonl"),
        ("s3://bucket", Scheme::S3, "bucket", ""),
        ("s3://bucket/a%20b//c?d#e", Scheme::S3, "bucket", "a%20b//c?d#e"),
        ("gs://bucket/a", Scheme::Gs, "bucket", "a"),
        ("az://container/a", Scheme::Az, "container", "a"),
        ("abfss://container/a", Scheme::Az, "container", "a"),
        ("file:///a%20b/c", Scheme::File, "", "/a b/c"),
        ("/a%20b/c:d", Scheme::File, "", "/a%20b/c:d"),
        ("http://host:8080/a/b?c=d", Scheme::Http, "host:8080", "a/b?c=d"),
        ("https://host:443/a b", Scheme::Https, "host", "a%20b"),
        ("https://host", Scheme::Https, "host", ""),
    ] {
        let location = parse(text);
        assert_eq!(
            (location.scheme, &*location.authority, &*location.key),
            (scheme, authority, key)
        );
    }
}

#[test]
fn a_relative_path_starts_at_the_current_folder() {
    let current = std::env::current_dir().unwrap();
    for text in ["data/train.jsonl", "./data/train.jsonl"] {
        assert_eq!(parse(text).key, current.join("data/train.jsonl").to_str().unwrap());
    }
    assert_eq!(parse("1:2//x").key, current.join("1:2/x").to_str().unwrap());
}

#[test]
fn the_folder_of_an_object_is_its_key_up_to_the_last_slash() {
    for (text, folder) in [
        ("s3://bucket/a/b/c.jsonl", "s3://bucket/a/b"),
        ("s3://bucket/c.jsonl", "s3://bucket/"),
        ("/a/c.jsonl", "/a"),
        ("/c.jsonl", ""),
        ("https://host/a/c.jsonl?x=/y/z", "https://host/a"),
    ] {
        assert_eq!(parse(text).folder().to_string(), folder);
    }
}

proptest! {
    #[test]
    fn what_is_joined_lies_below_the_root(relative in "[a./%?# é\\\\:@]{1,24}") {
        for root in ["s3://bucket/a/b", "/a/b", "http://host/a/b", "gs://bucket"] {
            let root = parse(root);
            let Ok(joined) = root.join(&relative) else { continue };
            let below = joined.to_string();
            let below = below.strip_prefix(&*root.to_string()).unwrap_or_else(|| panic!("{below}"));
            prop_assert!(!below.split('/').any(|segment| [".", ".."].contains(&segment)), "{below}");
            if root.scheme != Scheme::Http {
                let names = relative.split('/').filter(|name| !["", "."].contains(name));
                if !relative.contains("..") {
                    prop_assert_eq!(below.trim_start_matches('/'), names.collect::<Vec<_>>().join("/"));
                }
            }
        }
    }

    #[test]
    fn addresses_in_stores_come_back_as_they_were(key in "[ -~é]{0,30}") {
        for text in [format!("s3://bucket/{key}"), format!("gs://bucket/{key}")] {
            prop_assert_eq!(parse(&text).to_string(), text);
        }
    }

    #[test]
    fn no_address_makes_it_panic(text in "(s3|http|https|file|data|az)?:?/{0,3}[\\PC]{0,30}") {
        if let Ok(location) = Location::parse(&text) {
            location.folder().join("a.jpg").unwrap();
        }
    }
}
