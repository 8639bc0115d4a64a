//! What the decision about the format stands on, measured.

use std::fs;
use std::io::Write as _;
use std::time::Instant;

use bytes::Bytes;

use super::{bytes, files, open_with, read, runtime, write};

/// What docs/decisions/0013 says, measured; on one machine, in one run.
#[test]
#[ignore = "a minute: for figures"]
fn figures() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let micros = |begin: Instant, count: u64| begin.elapsed().as_secs_f64() * 1e6 / count as f64;
    for (entries, length) in [(20_000, 2_000), (2_000, 300_000)] {
        let bytes = bytes(1, 1, length);
        for (synced, count) in [(true, entries / 10), (false, entries)] {
            let place = folder.path().join("files");
            fs::create_dir(&place).unwrap();
            let begin = Instant::now();
            for number in 0..count {
                let temporary = place.join("temporary");
                let mut file = fs::File::create(&temporary).unwrap();
                file.write_all(&bytes).unwrap();
                if synced {
                    file.sync_all().unwrap();
                }
                fs::rename(&temporary, place.join(format!("{number:016x}"))).unwrap();
            }
            eprintln!("a file of {length}, synced: {synced}: {:.1} µs", micros(begin, count));
            fs::remove_dir_all(place).unwrap();
        }
        let place = folder.path().join(length.to_string());
        let (cache, _) = open_with(&place, 1, 8 << 30);
        let begin = Instant::now();
        assert!((0..entries).all(|number| write(&cache, number, 1, &bytes) == Some(true)));
        eprintln!("appended, {length}: {:.1} µs", micros(begin, entries));
        let begin = Instant::now();
        assert!((0..entries).all(|number| read(&cache, number, 1, u64::MAX).is_some()));
        eprintln!("read, {length}: {:.1} µs", micros(begin, entries));
        cache.seal();
        let begin = Instant::now();
        for file in files(&place) {
            fs::File::open(file).unwrap().sync_data().unwrap();
        }
        eprintln!("all synced: {:.1} µs", micros(begin, entries));
    }
    let place = folder.path().join("many");
    let (cache, _) = open_with(&place, 1, 8 << 30);
    let small = Bytes::from_static(b"x");
    assert!((0..1_000_000).all(|number| write(&cache, number, 1, &small) == Some(true)));
    cache.seal();
    drop(cache);
    let begin = Instant::now();
    let (cache, _) = open_with(&place, 1, 8 << 30);
    eprintln!("a million entries opened: {:.3} s", begin.elapsed().as_secs_f64());
    assert!(read(&cache, 999_999, 1, 1).is_some());
}
