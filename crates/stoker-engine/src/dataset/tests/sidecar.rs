//! The index file is used when it is sound, and never believed when it is not.

use std::fs;
use std::io;
use std::path::Path;

use super::super::sidecar::places;
use super::super::writer::unwritable;
use super::{Memory, config, files, gzip, naive_rows, open, rows};
use crate::recipe;
use crate::sample::Location;

const TEXT: &[u8] = b"{\"a\": 1}\n\n{\"b\": 22}\n{\"c\": 333}\n";

#[test]
fn a_second_opening_does_not_read_the_source() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [TEXT.to_vec(), gzip(TEXT)] {
        let store = Memory::new(bytes);
        let first = open(&config(&folder), &store).unwrap();
        let second = open(&config(&folder), &store).unwrap();
        assert_eq!(store.reads(), 1);
        assert_eq!(rows(&first, &store), naive_rows(TEXT));
        assert_eq!(rows(&second, &store), naive_rows(TEXT));
        assert_eq!(first.fingerprint(), second.fingerprint());
    }
}

#[test]
fn another_source_version_size_or_limit_builds_it_anew() {
    let folder = tempfile::tempdir().unwrap();
    let base = config(&folder);
    open(&base, &Memory::new(TEXT)).unwrap();

    let version = Memory { version: 1, ..Memory::new(TEXT) };
    open(&base, &version).unwrap();
    assert_eq!(version.reads(), 1, "another version");

    let size = Memory { version: 1, ..Memory::new("{}\n") };
    assert_eq!(open(&base, &size).unwrap().rows(), 1, "another size");

    let limit = Memory { version: 1, ..Memory::new("{}\n") };
    open(&recipe::Dataset { max_line: 10, ..base.clone() }, &limit).unwrap();
    assert_eq!(limit.reads(), 1, "another limit");

    let uri = recipe::Dataset { source: vec!["s3://bucket/other.jsonl".to_owned()], ..base };
    let moved = Memory { version: 1, ..Memory::new("{}\n") };
    open(&uri, &moved).unwrap();
    assert_eq!(moved.reads(), 1, "another address");
}

#[test]
fn a_damaged_index_is_built_anew_whatever_byte_is_hit() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    open(&config, &Memory::new(TEXT)).unwrap();
    let index = files(&folder).into_iter().find(|name| name.ends_with("stoker-index")).unwrap();
    let path = folder.path().join(index);
    let sound = fs::read(&path).unwrap();
    let check = |damaged: &[u8], what: &str| {
        fs::write(&path, damaged).unwrap();
        let store = Memory::new(TEXT);
        let data = open(&config, &store).unwrap();
        assert_eq!(store.reads(), 1, "{what}: it was believed");
        assert_eq!(rows(&data, &store), naive_rows(TEXT), "{what}");
        assert_eq!(fs::read(&path).unwrap(), sound, "{what}: it was not mended");
    };
    for length in 0..sound.len() {
        check(&sound[..length], &format!("cut to {length}"));
    }
    check(&[sound.as_slice(), b"\0"].concat(), "one byte more");
    for place in 0..sound.len() {
        let bit = place % 8;
        let mut damaged = sound.clone();
        damaged[place] ^= 1 << bit;
        check(&damaged, &format!("bit {bit} of byte {place}"));
    }
}

/// A request for each line would double the requests of the most common layout.
#[test]
fn lines_of_a_remote_source_are_kept_and_read_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let data = open(&config(&folder), &Memory::new(TEXT)).unwrap();
    for row in 0..data.rows() {
        let extent = data.locate(row).unwrap();
        assert!(extent.object.key.ends_with("stoker-lines"), "{}", extent.object);
        let lines = fs::read(&extent.object.key).unwrap();
        let range = extent.range.unwrap();
        let line = &lines[range.start as usize..range.end as usize];
        assert_eq!(line, naive_rows(TEXT)[row as usize].1.as_slice());
    }
}

#[test]
fn lines_that_are_gone_or_cut_off_are_unpacked_anew() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    open(&config, &Memory::new(gzip(TEXT))).unwrap();
    let lines = files(&folder).into_iter().find(|name| name.ends_with("stoker-lines")).unwrap();
    let lines = folder.path().join(lines);
    let damages: [&dyn Fn(&Path); 2] =
        [&|path| fs::remove_file(path).unwrap(), &|path| fs::write(path, b"{").unwrap()];
    for damage in damages {
        damage(&lines);
        let store = Memory::new(gzip(TEXT));
        let data = open(&config, &store).unwrap();
        assert_eq!(store.reads(), 1);
        assert_eq!(rows(&data, &store), naive_rows(TEXT));
    }
}

#[test]
fn a_new_version_of_a_compressed_source_leaves_the_lines_of_a_running_job() {
    let folder = tempfile::tempdir().unwrap();
    let before = Memory::new(gzip(TEXT));
    let running = open(&config(&folder), &before).unwrap();
    let after = Memory { version: 1, ..Memory::new(gzip(b"{\"z\": 9}\n")) };
    let fresh = open(&config(&folder), &after).unwrap();
    assert_eq!(rows(&fresh, &after), naive_rows(b"{\"z\": 9}\n"));
    assert_eq!(rows(&running, &before), naive_rows(TEXT));
}

#[test]
fn builders_at_the_same_time_do_each_other_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let text = super::numbered(5000);
    let packed = gzip(text.as_bytes());
    let (config, expected) = (config(&folder), naive_rows(text.as_bytes()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    // Half of them see another version, so that they replace each other's files.
                    for version in [0, 1] {
                        let store = Memory { version, ..Memory::new(packed.clone()) };
                        let data = open(&config, &store).unwrap();
                        let lines = fs::read(&data.locate(0).unwrap().object.key).unwrap();
                        for row in [0, 1, 2500, 4999] {
                            let range = data.locate(row).unwrap().range.unwrap();
                            let range = range.start as usize..range.end as usize;
                            assert_eq!(lines[range], expected[row as usize].1);
                        }
                    }
                }
            });
        }
    });
    let left: Vec<_> = files(&folder).into_iter().filter(|name| name.ends_with("tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_index_lies_in_the_given_folder_or_beside_the_source_or_in_the_cache() {
    let index = |uri: &str, folder| -> Vec<String> {
        let source = Location::parse(uri).unwrap();
        let places = places(&source, folder, "").unwrap();
        places.iter().map(|place| place.index().display().to_string()).collect()
    };
    let home = std::env::home_dir().unwrap().display().to_string();
    let local = index("/data/a b.jsonl.gz", None);
    assert_eq!(local[0], "/data/a b.jsonl.gz.stoker-index");
    assert!(local[1].starts_with(&format!("{home}/.cache/stoker/")), "{local:?}");
    let remote = index(super::URI, None);
    assert_eq!(remote.len(), 1);
    assert!(remote[0].starts_with(&format!("{home}/.cache/stoker/")), "{remote:?}");
    for uri in ["/data/a.jsonl", super::URI] {
        let given = index(uri, Some("/indexes"));
        assert_eq!(given.len(), 1);
        assert!(given[0].starts_with("/indexes/"), "{given:?}");
    }
    let current = std::env::current_dir().unwrap().display().to_string();
    assert!(index(super::URI, Some("here"))[0].starts_with(&format!("{current}/here/")));
    assert_ne!(index("s3://a/x", None), index("s3://b/x", None));
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let index_dir = Some(file.to_str().unwrap().to_owned());
    let error = open(&recipe::Dataset { index_dir, ..config(&folder) }, &Memory::new(TEXT));
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("the index can't be written: "), "{error}");
    assert!(error.contains("set dataset.index-dir to a folder that can be written"), "{error}");
    assert!(error.contains(file.to_str().unwrap()), "{error}");
}

#[test]
fn a_full_disk_is_named_with_the_way_out() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let error = unwritable(Path::new("/cache/x.stoker-index"), &full).to_string();
    let expected = "the index can't be written: no storage space; free some space, or set \
                    dataset.index-dir to a folder with more of it: /cache/x.stoker-index";
    assert_eq!(error, expected);
}
