//! The local cache: what it saves the store, what it survives, and who shares it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use stoker_engine::error::DatasetErrorKind;
use stoker_engine::fetch::CacheMemory;
use stoker_engine::metrics::CacheReport;

use super::*;

const MEMORY: CacheMemory = CacheMemory { queue: 8 << 20, places: 8 << 20 };

fn cached(endpoint: String, folder: &Path, size: u64, data: u64) -> (Fetcher, Arc<Metrics>) {
    let path = folder.display().to_string();
    let cache = Some(recipe::Cache { path, size });
    let (fetcher, metrics) = fetcher(&recipe::Fetch { cache, ..settings(endpoint) });
    fetcher.open_cache(data, MEMORY).unwrap();
    (fetcher, metrics)
}

fn report(metrics: &Metrics) -> CacheReport {
    metrics.report().fetch.cache
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// What a folder holds, of everybody.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder.join("stoker-cache-1")) else { return 0 };
    let size = |path: &Path| path.metadata().map_or(0, |about| about.len());
    let paths = entries.map(|entry| entry.unwrap().path());
    let kinds = |path: &Path| path.extension().is_some_and(|it| it == "data" || it == "index");
    paths.filter(|path| kinds(path)).map(|path| size(&path)).sum()
}

/// An object that tells what it is.
fn content(number: u64, length: usize) -> Bytes {
    (0..length as u64).map(|place| (number * 131 + place * 7 + place / 251) as u8).collect()
}

/// Reads objects in some order, many at once, and checks each.
fn read_all(fetcher: &Fetcher, order: Vec<u64>, length: usize) {
    let reads = order.into_iter().map(|number| {
        let inner = fetcher.clone();
        fetcher.spawn(async move {
            let read = inner.read(&whole(&number.to_string()), |_| ready(Ok(()))).await.unwrap();
            assert_eq!(read, content(number, length), "{number}");
        })
    });
    for read in reads.collect::<Vec<_>>() {
        run(read).unwrap();
    }
}

#[test]
fn a_second_run_asks_the_store_for_nothing() {
    let (server, folder) = (server(&Config::default()), tempfile::tempdir().unwrap());
    for number in 0..50 {
        server.put("bucket", &number.to_string(), content(number, 20_000)).unwrap();
    }
    server.put("bucket", "empty", "").unwrap();
    server.put("bucket", "shard", pattern(100_000)).unwrap();
    let ranges = [0..1, 5..5, 17..60_000, 99_999..100_000];
    let pass = |fetcher: &Fetcher| {
        read_all(fetcher, (0..50).collect(), 20_000);
        assert_eq!(fetcher.read_blocking(&whole("empty")).unwrap(), "");
        for range in ranges.clone() {
            let (start, end) = (range.start as usize, range.end as usize);
            let extent = Extent { object: object("shard"), range: Some(range) };
            assert_eq!(fetcher.read_blocking(&extent).unwrap(), pattern(100_000).slice(start..end));
        }
        let beginning = run(fetcher.beginning(&whole("7"), 100)).unwrap();
        assert_eq!(beginning, (content(7, 100), 20_000));
    };
    let (first, metrics) = cached(server.endpoint(), folder.path(), 16 << 20, 1);
    pass(&first);
    first.close();
    assert_eq!(report(&metrics).admitted, 54);
    assert_eq!(metrics.fetch.cache.queued_bytes.get(), 0);
    assert_eq!(first.read_blocking(&whole("7")).unwrap_err(), Error::Stopped);

    let asked = server.stats().requests;
    let (second, metrics) = cached(server.endpoint(), folder.path(), 16 << 20, 1);
    pass(&second);
    pass(&second);
    assert_eq!(server.stats().requests, asked, "not one request");
    let CacheReport { hits, hit_bytes, misses, admitted, .. } = report(&metrics);
    assert_eq!((hits, misses, admitted), (2 * 55, 0, 0));
    assert_eq!(hit_bytes, 2 * (50 * 20_000 + 1 + 59_983 + 1 + 100));
    assert_eq!(metrics.fetch.requests.get(), 0);
    // The same names in another store are other objects.
    let elsewhere = self::server(&Config::default());
    let (third, _) = cached(elsewhere.endpoint(), folder.path(), 16 << 20, 1);
    assert_eq!(fetch_error(third.read_blocking(&whole("7"))).kind, FetchErrorKind::NotFound);
}

#[test]
fn what_was_opened_in_a_newer_version_is_not_served_in_the_older_one() {
    let (server, folder) = (server(&Config::default()), tempfile::tempdir().unwrap());
    let extent = Extent { object: object("shard"), range: Some(10..90) };
    let (old, new) = (content(1, 100), content(2, 100));
    let pass = |expected: &Bytes| {
        let path = folder.path().display().to_string();
        let cache = Some(recipe::Cache { path, size: 1 << 20 });
        let (fetcher, metrics) = fetcher(&recipe::Fetch { cache, ..settings(server.endpoint()) });
        // As when a data set is opened.
        fetcher.stat_blocking(&object("shard")).unwrap();
        fetcher.open_cache(1, MEMORY).unwrap();
        assert_eq!(fetcher.read_blocking(&extent).unwrap(), expected.slice(10..90));
        fetcher.close();
        report(&metrics)
    };
    server.put("bucket", "shard", old.clone()).unwrap();
    assert_eq!(pass(&old).admitted, 1);
    assert_eq!(pass(&old).hits, 1);
    server.put("bucket", "shard", new.clone()).unwrap();
    let report = pass(&new);
    assert_eq!((report.hits, report.misses, report.admitted), (0, 1, 1));
    assert_eq!(pass(&new).hits, 1);

    // Replaced while it is read: refused, as without a cache, and not kept as what it is not.
    let path = folder.path().display().to_string();
    let cache = Some(recipe::Cache { path, size: 1 << 20 });
    let (running, metrics) = fetcher(&recipe::Fetch { cache, ..settings(server.endpoint()) });
    running.stat_blocking(&object("shard")).unwrap();
    running.open_cache(1, MEMORY).unwrap();
    server.put("bucket", "shard", old.clone()).unwrap();
    let part = Extent { object: object("shard"), range: Some(0..5) };
    assert_eq!(fetch_error(running.read_blocking(&part)).kind, FetchErrorKind::Changed);
    running.close();
    assert_eq!((self::report(&metrics).hits, self::report(&metrics).admitted), (0, 0));
}

#[test]
fn of_a_cache_that_holds_a_third_of_the_data_a_third_of_the_reads_are_served() {
    const OBJECTS: u64 = 1000;
    const LENGTH: usize = 3000;
    const SIZE: u64 = 1 << 20;
    let (server, folder) = (server(&Config::default()), tempfile::tempdir().unwrap());
    for number in 0..OBJECTS {
        server.put("bucket", &number.to_string(), content(number, LENGTH)).unwrap();
    }
    let (fetcher, metrics) = cached(server.endpoint(), folder.path(), SIZE, 1);
    let mut random = Random(5);
    let mut hits = Vec::new();
    for _epoch in 0..4 {
        let before = report(&metrics).hits;
        let mut order: Vec<u64> = (0..OBJECTS).collect();
        order.sort_by_cached_key(|_| random.draw());
        read_all(&fetcher, order, LENGTH);
        hits.push(report(&metrics).hits - before);
        assert!(size(folder.path()) <= SIZE);
    }
    let share = SIZE as f64 / (OBJECTS as f64 * LENGTH as f64);
    eprintln!("hits in epochs of {OBJECTS}: {hits:?}; cache / data set: {share:.3}");
    assert_eq!(hits[0], 0);
    // What a disk that is behind did not take in one epoch, it takes in the next.
    assert!(hits[3] as f64 >= 0.9 * share * OBJECTS as f64, "{hits:?}");
    assert!(hits.is_sorted(), "nothing comes and goes: {hits:?}");
    fetcher.close();
    let CacheReport { evicted, damaged, failed, refused, .. } = report(&metrics);
    assert_eq!((evicted, damaged, failed), (0, 0, 0));
    assert!(refused > 1000);
    assert_eq!(metrics.fetch.cache.queued_bytes.get(), 0);
}

#[test]
fn a_damaged_entry_is_fetched_again_and_nobody_notices() {
    let (server, folder) = (server(&Config::default()), tempfile::tempdir().unwrap());
    for number in 0..10 {
        server.put("bucket", &number.to_string(), content(number, 5000)).unwrap();
    }
    let (first, _) = cached(server.endpoint(), folder.path(), 4 << 20, 1);
    read_all(&first, (0..10).collect(), 5000);
    first.close();
    for entry in fs::read_dir(folder.path().join("stoker-cache-1")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "data") {
            let mut bytes = fs::read(&path).unwrap();
            bytes[3000] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    }
    for (misses, damaged) in [(1, 1), (0, 0)] {
        let (fetcher, metrics) = cached(server.endpoint(), folder.path(), 4 << 20, 1);
        read_all(&fetcher, (0..10).collect(), 5000);
        fetcher.close();
        assert_eq!((report(&metrics).misses, report(&metrics).damaged), (misses, damaged));
    }
}

#[test]
fn a_folder_that_can_not_be_used_is_one_error_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let cache = Some(recipe::Cache { path: file.join("in").display().to_string(), size: 1 << 20 });
    let (fetcher, _) = fetcher(&recipe::Fetch { cache, ..recipe::Fetch::default() });
    let Error::Dataset(error) = fetcher.open_cache(1, MEMORY).unwrap_err() else { panic!() };
    assert_eq!(error.kind, DatasetErrorKind::Disk);
    let words = Error::Dataset(error).to_string();
    assert!(words.contains("the cache can't be used: Not a directory"), "{words}");
    assert!(
        words.contains("fetch.cache.path names its folder: mend that, name another"),
        "{words}"
    );
    assert!(words.contains("/file/in"), "{words}");
}

#[test]
fn a_folder_that_vanishes_is_counted_and_the_run_goes_on() {
    let (server, folder) = (server(&Config::default()), tempfile::tempdir().unwrap());
    for number in 0..40 {
        server.put("bucket", &number.to_string(), content(number, 9000)).unwrap();
    }
    let (fetcher, metrics) = cached(server.endpoint(), folder.path(), 1 << 20, 1);
    read_all(&fetcher, (0..20).collect(), 9000);
    // In one step: the cache may be writing.
    let away = tempfile::tempdir().unwrap();
    fs::rename(folder.path(), away.path().join("gone")).unwrap();
    drop(away);
    read_all(&fetcher, (0..40).collect(), 9000);
    fetcher.close();
    assert!(report(&metrics).failed > 0);
    assert!(!folder.path().exists(), "it may be a disk that is not mounted");
    assert_eq!(metrics.fetch.cache.queued_bytes.get(), 0);
}

/// The other processes of the tests below: reads what its orders say until it is killed, or all of
/// it once.
#[test]
#[ignore = "a process that other tests start"]
fn one_of_many() {
    let Ok(orders) = fs::read_to_string("orders") else { return };
    let orders: Vec<&str> = orders.lines().collect();
    let [endpoint, objects, length, size, data, forever] = orders[..] else { panic!() };
    let (objects, length) = (objects.parse::<u64>().unwrap(), length.parse().unwrap());
    let folder = Path::new("../cache");
    let data = data.parse::<u64>().unwrap();
    let size = size.parse().unwrap();
    let (fetcher, metrics) = cached(endpoint.into(), folder, size, data);
    let mut random = Random(data);
    if forever == "true" {
        loop {
            let number = random.draw() % objects;
            let read = fetcher.read_blocking(&whole(&number.to_string())).unwrap();
            if read != content(number, length) {
                fs::write("wrong", number.to_string()).unwrap();
            }
        }
    }
    read_all(&fetcher, (0..objects).collect(), length);
    fetcher.close();
    fs::write("failed", report(&metrics).failed.to_string()).unwrap();
}

fn start(folder: &Path, orders: &[String; 6], limits: &str) -> Child {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("orders"), orders.join("\n")).unwrap();
    let own = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    let script = format!("{limits} exec \"$0\" --ignored --exact cache::one_of_many");
    shell.arg("-c").arg(script).arg(own).current_dir(folder).stdout(Stdio::null());
    shell.spawn().unwrap()
}

#[test]
fn processes_that_share_a_folder_may_be_killed_at_any_moment() {
    const OBJECTS: u64 = 60;
    const LENGTH: usize = 9000;
    const SIZE: u64 = 300_000;
    let (server, folder) = (server(&Config::default()), tempfile::tempdir().unwrap());
    for number in 0..OBJECTS {
        server.put("bucket", &number.to_string(), content(number, LENGTH)).unwrap();
    }
    let cache = folder.path().join("cache");
    let mut random = Random(11);
    for round in 0..14_u64 {
        let mut children: Vec<Child> = (0..3_u64)
            .map(|number| {
                // Ranks of one run, and another run beside them; other data in each round, so that
                // entries go all the time.
                let data = round * 2 + number / 2;
                let orders = [
                    server.endpoint(),
                    OBJECTS.to_string(),
                    LENGTH.to_string(),
                    SIZE.to_string(),
                    data.to_string(),
                    "true".to_owned(),
                ];
                start(&folder.path().join(number.to_string()), &orders, "")
            })
            .collect();
        // A slow machine needs a while until there is anything to kill.
        while round == 0 && size(&cache) < SIZE / 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        for child in &mut children {
            for _look in 0..random.draw() % 12 {
                std::thread::sleep(Duration::from_millis(10));
                assert!(size(&cache) <= SIZE, "{} bytes", size(&cache));
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    for number in 0..3 {
        assert!(!folder.path().join(format!("{number}/wrong")).exists());
    }
    let (fetcher, metrics) = cached(server.endpoint(), &cache, SIZE, 1000);
    read_all(&fetcher, (0..OBJECTS).collect(), LENGTH);
    fetcher.close();
    let CacheReport { hits, damaged, failed, .. } = report(&metrics);
    assert!(hits > 0, "what the killed have left is of use");
    assert_eq!((damaged, failed), (0, 0));
    assert!(size(&cache) <= SIZE);
}

#[test]
fn a_disk_that_is_full_is_counted_and_the_run_goes_on() {
    let (server, folder) = (server(&Config::default()), tempfile::tempdir().unwrap());
    for number in 0..30 {
        server.put("bucket", &number.to_string(), content(number, 9000)).unwrap();
    }
    let rest = ["30", "9000", "16777216", "1", "false"].map(str::to_owned);
    let [objects, length, size, data, forever] = rest;
    let orders = [server.endpoint(), objects, length, size, data, forever];
    // No file may have more than 64 blocks of 512 bytes: writes fail beyond, as on a full disk.
    let limits = "trap '' XFSZ; ulimit -f 64;";
    let mut child = start(&folder.path().join("one"), &orders, limits);
    assert!(child.wait().unwrap().success(), "it read everything");
    assert_eq!(fs::read_to_string(folder.path().join("one/failed")).unwrap(), "1");
    // What was written before that is whole, and what was not is cut off.
    let (fetcher, metrics) = cached(server.endpoint(), &folder.path().join("cache"), 16 << 20, 1);
    read_all(&fetcher, (0..30).collect(), 9000);
    fetcher.close();
    let CacheReport { hits, misses, damaged, .. } = report(&metrics);
    assert_eq!((hits, misses, damaged), (3, 27, 0));
}

/// What docs/rooms/fetch.md says of speed, measured; on one machine, in one run.
#[test]
#[ignore = "half a minute: for figures"]
fn figures() {
    let (folder, since) = (tempfile::tempdir().unwrap(), Instant::now);
    for profile in [Profile::Hot, Profile::Standard] {
        let server = server(&Config { profile, seed: 3, ..Config::default() });
        for number in 0..600 {
            server.put("bucket", &number.to_string(), content(number, 300_000)).unwrap();
        }
        let path = folder.path().join(profile.as_str());
        let (fetcher, metrics) = cached(server.endpoint(), &path, 8 << 30, 1);
        for epoch in 1..=3 {
            let begin = since();
            let reads = (0..600).map(|number: u64| {
                let inner = fetcher.clone();
                fetcher.spawn(async move {
                    let read = inner.read(&whole(&number.to_string()), |_| ready(Ok(()))).await;
                    read.unwrap().len()
                })
            });
            let bytes: usize =
                reads.collect::<Vec<_>>().into_iter().map(|it| run(it).unwrap()).sum();
            let each = begin.elapsed().as_secs_f64();
            let speed = bytes as f64 / each / 1e6;
            eprintln!(
                "{}, epoch {epoch}: {:.0} reads/s, {speed:.0} MB/s",
                profile.as_str(),
                600.0 / each
            );
        }
        fetcher.close();
        eprintln!("{:?}", report(&metrics));
    }
}
