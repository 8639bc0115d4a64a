//! Many shards are one dataset, in an order that does not depend on who lists them.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use super::super::Dataset;
use super::{Bucket, config, files, gzip, numbered, open, rows_of, zstd};
use crate::error::{Error, Result};
use crate::recipe;

fn sources(folder: &tempfile::TempDir, names: &[&str]) -> recipe::Dataset {
    let source = names.iter().map(|name| (*name).to_owned()).collect();
    recipe::Dataset { source, ..config(folder) }
}

/// A shard whose rows say where they stand.
fn shard(name: &str, rows: usize) -> Vec<u8> {
    (0..rows).flat_map(|row| format!("\"{name} {row}\"\n").into_bytes()).collect()
}

fn bucket() -> Bucket {
    let names = ["data/a-0.jsonl", "data/a-1.jsonl", "data/a-10.jsonl", "data/a-2.jsonl"];
    let mut objects: Vec<_> =
        names.iter().enumerate().map(|(rows, name)| (*name, shard(name, rows + 1))).collect();
    objects.push(("data/sub/b.jsonl", shard("b", 2)));
    objects.push(("data/.hidden.jsonl", shard("hidden", 9)));
    objects.push(("data/a-0.jsonl.stoker-index", b"no shard".to_vec()));
    objects.push(("data/odd[1].jsonl", shard("odd", 1)));
    objects.push(("database/c.jsonl", shard("c", 1)));
    Bucket::new(objects)
}

/// The shards that these names find, by their keys, in order.
fn found(names: &[&str]) -> Result<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let data = open(&sources(&folder, names), &bucket())?;
    let mut shards: Vec<String> = Vec::new();
    for row in 0..data.rows() {
        let origin = data.origin(row);
        let (name, _) = origin.strip_prefix("s3://bucket/").unwrap().rsplit_once(':').unwrap();
        if shards.last().is_none_or(|last| last != name) {
            shards.push(name.to_owned());
        }
    }
    Ok(shards)
}

#[test]
fn shards_come_in_the_order_of_the_list_and_patterns_in_the_order_of_the_names() {
    let all = ["data/a-0.jsonl", "data/a-1.jsonl", "data/a-10.jsonl", "data/a-2.jsonl"];
    assert_eq!(found(&["s3://bucket/data/a-*.jsonl"]).unwrap(), all);
    assert_eq!(found(&["s3://bucket/data/a-?.jsonl"]).unwrap(), [all[0], all[1], all[3]]);
    assert_eq!(found(&["s3://bucket/data/a-[01].jsonl"]).unwrap(), [all[0], all[1]]);
    assert_eq!(found(&["s3://bucket/data/a-{2..0}.jsonl"]).unwrap(), [all[3], all[1], all[0]]);
    let list = ["s3://bucket/data/a-2.jsonl", "s3://bucket/data/sub/*", "s3://bucket/data/a-1*"];
    assert_eq!(found(&list).unwrap(), [all[3], "data/sub/b.jsonl", all[1], all[2]]);
    let deep = found(&["s3://bucket/data/**/*.jsonl"]).unwrap();
    assert_eq!(deep, [all[0], all[1], all[2], all[3], "data/odd[1].jsonl", "data/sub/b.jsonl"]);
    let quoted = ["s3://bucket/data/odd[[]1].jsonl", "s3://bucket/data/odd[1].jsonl"];
    for name in quoted {
        assert_eq!(found(&[name]).unwrap(), ["data/odd[1].jsonl"], "{name}");
    }
}

#[test]
fn local_patterns_find_what_those_of_a_bucket_find() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("odd [x]{a,b}");
    for (key, bytes) in &bucket().objects {
        let path = root.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let fetcher = crate::fetch::Fetcher::new(&recipe::Fetch::default(), std::sync::Arc::default());
    let fetcher = fetcher.unwrap();
    let indexes = tempfile::tempdir().unwrap();
    let root = recipe::patterns::quoted(root.to_str().unwrap());
    for pattern in ["data/a-*.jsonl", "data/**/*.jsonl", "data/a-{2,0}.jsonl", "data/odd[1].jsonl"]
    {
        let remote = format!("s3://bucket/{pattern}");
        let expected = open(&sources(&indexes, &[&remote]), &bucket()).unwrap();
        let local = sources(&indexes, &[&format!("{root}/{pattern}")]);
        let local = Dataset::open(&local, &fetcher, &mut |_, _| {}).unwrap();
        assert_eq!(local.rows(), expected.rows(), "{pattern}");
        assert_eq!(local.fingerprint(), expected.fingerprint(), "{pattern}");
        assert_eq!(local.shards(), expected.shards(), "{pattern}");
    }
}

#[test]
fn rows_of_all_shards_follow_one_another_and_know_their_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let store = Bucket::new([
        ("0.jsonl", b"\n\n1\n2\n".to_vec()),
        ("1.jsonl", b"\n".to_vec()),
        ("2.jsonl.gz", gzip(b"3\n\n4")),
        ("3.jsonl", Vec::new()),
        ("4.jsonl", b"5\n".to_vec()),
    ]);
    let data = open(&sources(&folder, &["s3://bucket/*"]), &store).unwrap();
    assert_eq!(data.rows(), 5);
    assert_eq!((data.shards(), data.shard_count()), (vec![0, 2, 4], 5), "two are empty");
    let expected =
        ["0.jsonl:3 1", "0.jsonl:4 2", "2.jsonl.gz:1 3", "2.jsonl.gz:3 4", "4.jsonl:1 5"];
    assert_eq!(rows_of(&data, &store), expected.map(|row| format!("s3://bucket/{row}")));
    assert_eq!(data.locate(5).unwrap_err().code, "index-unreadable");
    let empty = |name: &str| format!("the shard has no samples: s3://bucket/{name}");
    assert_eq!(data.notes(), [empty("1.jsonl"), empty("3.jsonl")]);
}

#[test]
fn one_shard_of_a_pattern_is_the_dataset_of_that_shard() {
    let folder = tempfile::tempdir().unwrap();
    let store = bucket();
    let one = open(&sources(&folder, &["s3://bucket/data/a-2.jsonl"]), &store).unwrap();
    let same = open(&sources(&folder, &["s3://bucket/data/a-2*"]), &store).unwrap();
    let more = open(&sources(&folder, &["s3://bucket/data/a-[02].jsonl"]), &store).unwrap();
    assert_eq!(one.fingerprint(), same.fingerprint());
    assert_ne!(one.fingerprint(), more.fingerprint());
    assert_eq!(store.asked("read"), 2, "a shard's index serves every dataset it is in");
}

#[test]
fn the_fingerprint_of_many_shards_is_of_their_rows_and_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let of = |names: &[&str], objects: &[(&str, Vec<u8>)]| {
        let store = Bucket::new(objects.iter().cloned());
        open(&sources(&folder, names), &store).unwrap().fingerprint()
    };
    let (a, b) = (numbered(3).into_bytes(), numbered(5).into_bytes());
    let names = ["s3://bucket/a.jsonl", "s3://bucket/b.jsonl"];
    let first = of(&names, &[("a.jsonl", a.clone()), ("b.jsonl", b.clone())]);
    assert_eq!(first, of(&["s3://bucket/*"], &[("x.jsonl", a.clone()), ("y.gz", gzip(&b))]));
    assert_ne!(first, of(&["s3://bucket/*"], &[("x.jsonl", b.clone()), ("y.jsonl", a.clone())]));
    assert_ne!(first, of(&["s3://bucket/*"], &[("x.jsonl", [a, b].concat())]));
}

#[test]
fn an_index_that_was_broken_off_goes_on_with_the_shards_that_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = bucket();
    let config = sources(&folder, &["s3://bucket/data/a-{0,1,10,2}.jsonl"]);
    store.objects.insert("data/a-10.jsonl".into(), b"[1]".to_vec());
    let error = open(&config, &store).unwrap_err().to_string();
    assert!(error.starts_with("the source is one JSON array"), "{error}");
    assert_eq!(store.asked("read"), 4, "the other shards were indexed");
    store.objects.insert("data/a-10.jsonl".into(), shard("x", 3));
    store.log = Mutex::default();
    let mut told = Vec::new();
    let data = Dataset::open_from(&config, &store, &mut |done, all| told.push((done, all)));
    assert_eq!(data.unwrap().rows(), 1 + 2 + 3 + 4);
    assert_eq!(store.asked("read"), 1);
    let all = config_bytes(&store);
    assert_eq!(told.last(), Some(&(all, all)), "what is done already counts as done");
}

#[test]
fn those_who_start_together_build_an_index_once() {
    let (folder, store) = (tempfile::tempdir().unwrap(), bucket());
    let config = sources(&folder, &["s3://bucket/data/a-*.jsonl"]);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(open(&config, &store).unwrap().rows(), 1 + 2 + 3 + 4));
        }
    });
    assert_eq!(store.asked("read"), 4, "each shard was read once");
    let left = files(&folder).into_iter().filter(|name| !name.ends_with("stoker-index"));
    assert_eq!(left.count(), 4, "the lines alone lie beside the indexes");
}

#[test]
fn what_a_killed_builder_left_is_removed_and_what_another_writes_is_not() {
    let (folder, store) = (tempfile::tempdir().unwrap(), bucket());
    let made = |name: &str, is_old: bool| {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        if is_old {
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        file
    };
    drop(made(".stoker-1-0.tmp", true));
    let held = made(".stoker-2-0.tmp", true);
    held.lock().unwrap();
    drop((made(".stoker-3-0.tmp", false), made(".mine.tmp", true), made(".stoker-notes", true)));
    open(&sources(&folder, &["s3://bucket/data/a-2.jsonl"]), &store).unwrap();
    let left = files(&folder).into_iter().filter(|name| name.starts_with('.'));
    let expected = [".mine.tmp", ".stoker-2-0.tmp", ".stoker-3-0.tmp", ".stoker-notes"];
    assert_eq!(left.collect::<Vec<_>>(), expected);
}

#[test]
fn an_index_goes_to_other_hosts_with_what_was_copied_or_not_at_all() {
    let (folder, store) = (tempfile::tempdir().unwrap(), bucket());
    let data = open(&sources(&folder, &["s3://bucket/data/a-*.jsonl"]), &store).unwrap();
    let copied = config_bytes(&store);
    assert!(data.index_files(copied - 1).is_empty());
    let sent = data.index_files(copied);
    assert_eq!(sent.len(), 8, "an index and lines of each");
    let there = tempfile::tempdir().unwrap();
    for path in sent {
        fs::copy(&path, there.path().join(path.file_name().unwrap())).unwrap();
    }
    let other = Bucket::new(store.objects.clone());
    let same = open(&sources(&there, &["s3://bucket/data/a-*.jsonl"]), &other).unwrap();
    assert_eq!((same.rows(), same.fingerprint()), (data.rows(), data.fingerprint()));
    assert_eq!(other.asked("read"), 0);
}

fn config_bytes(store: &Bucket) -> u64 {
    let shards = store.objects.iter().filter(|(key, _)| {
        key.starts_with("data/a-") && Path::new(key).extension().is_some_and(|it| it == "jsonl")
    });
    shards.map(|(_, bytes)| bytes.len() as u64).sum()
}

#[test]
fn all_shards_that_cannot_be_used_are_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let good = (0..20).map(|number| (format!("{number:02}.jsonl"), b"{}\n".to_vec()));
    let mut store = Bucket::new(good);
    for bad in ["03.jsonl", "17.jsonl"] {
        store.objects.insert(bad.to_owned(), b"PAR1xxxxPAR1".to_vec());
    }
    let error = open(&sources(&folder, &["s3://bucket/*"]), &store).unwrap_err().to_string();
    let each = |name: &str| {
        format!(
            "the source is a Parquet file, not JSON lines; name it *.parquet, or set \
             dataset.format = \"parquet\": s3://bucket/{name}"
        )
    };
    let expected = format!(
        "2 of 20 shards can't be used, the first of them:\n  {}\n  {}\nbeginning with: \
         s3://bucket/03.jsonl",
        each("03.jsonl"),
        each("17.jsonl")
    );
    assert_eq!(error, expected);
    let indexes = files(&folder).len();
    assert_eq!(indexes, 18 * 2, "an index and the lines of each of the others");
}

#[test]
fn many_shards_are_described_by_one_listing_and_few_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = Bucket::new((0..100).map(|number| (format!("x/{number:03}.jsonl"), "{}\n")));
    let open = |names: &[&str]| open(&sources(&folder, names), &store);
    open(&["s3://bucket/x/{000..099}.jsonl"]).unwrap();
    assert_eq!((store.asked("list"), store.asked("read")), (1, 100));
    let stats = store.asked("stat");
    assert_eq!(stats, 200, "before and after each is read");
    open(&["s3://bucket/x/{000..099}.jsonl"]).unwrap();
    assert_eq!((store.asked("list"), store.asked("read"), store.asked("stat")), (2, 100, stats));
    open(&["s3://bucket/x/{000..009}.jsonl"]).unwrap();
    assert_eq!((store.asked("list"), store.asked("stat")), (2, stats + 10));
    let error = open(&["s3://bucket/x/{000..100}.jsonl"]).unwrap_err();
    assert!(error.to_string().contains("no such object"), "{error}");
    assert!(error.to_string().contains("s3://bucket/x/100.jsonl"), "{error}");
}

#[test]
fn what_names_no_shards_or_wrong_ones_is_refused_with_the_key() {
    let problem = |names: &[&str]| match found(names).unwrap_err() {
        Error::Recipe(problems) => problems[0].to_string(),
        other => panic!("{other}"),
    };
    assert_eq!(
        problem(&["s3://bucket/data/z-*.jsonl"]),
        "dataset.source: s3://bucket/data/z-*.jsonl finds nothing; check the name; `*` does not reach \
         into folders, `**` does"
    );
    assert_eq!(
        problem(&["s3://bucket/data/a-1.jsonl", "s3://bucket/data/*"]),
        "dataset.source: s3://bucket/data/a-1.jsonl is named twice; let no two patterns find the same \
         shard"
    );
    assert_eq!(
        problem(&["s3://bucket/a.tar", "s3://bucket/b.jsonl"]),
        "dataset.source: s3://bucket/a.tar and s3://bucket/b.jsonl are of different formats by name; \
         give each format a dataset of its own, or set dataset.format"
    );
    assert_eq!(
        problem(&["s3://bucket/data/sub/"]),
        "dataset.source: `s3://bucket/data/sub/` names a folder, not a file"
    );
}

#[test]
fn a_dataset_without_any_sample_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Bucket::new([("a.jsonl", b"\n".to_vec()), ("b.jsonl", zstd(b""))]);
    let error = open(&sources(&folder, &["s3://bucket/*"]), &store).unwrap_err().to_string();
    assert!(error.starts_with("the source has no samples"), "{error}");
}

#[test]
fn more_shards_than_files_may_be_open_are_read_at_random() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        Bucket::new((0..300).map(|number| (format!("{number:03}.jsonl"), format!("{number}\n"))));
    let data = open(&sources(&folder, &["s3://bucket/*"]), &store).unwrap();
    for step in 0..1000_u64 {
        let row = step * 7919 % 300;
        assert_eq!(data.origin(row), format!("s3://bucket/{row:03}.jsonl:1"));
    }
    // A file that is no longer the one that was opened is noticed.
    for name in files(&folder).iter().filter(|name| name.ends_with("index")) {
        let path = folder.path().join(name);
        let other = fs::read(&path).unwrap();
        fs::write(&path, [&other[..40], &[other[40] ^ 1], &other[41..]].concat()).unwrap();
    }
    let unreadable = (0..300).filter(|row| data.locate(*row).is_err()).count();
    assert!(unreadable >= 300 - 128, "{unreadable}");
}
