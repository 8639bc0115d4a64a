//! The cache against a model of it, and against files that are not what they were.

mod figures;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::entry::{Header, Name, SLOT, Version};
use super::{Cache, CacheMemory, Item, Wanted};
use crate::metrics::Metrics;
use crate::recipe;
use crate::sample::{Extent, Location, Scheme};

const LIMIT: u64 = 64 << 10;
const MEMORY: CacheMemory = CacheMemory { queue: 1 << 20, places: 4 << 20 };

/// A cache that is opened by some process, for some data.
fn open(folder: &Path, scope: u64) -> (Cache, Arc<Metrics>) {
    open_with(folder, scope, LIMIT)
}

fn open_with(folder: &Path, scope: u64, size: u64) -> (Cache, Arc<Metrics>) {
    let config = recipe::Cache { path: folder.display().to_string(), size };
    let metrics = Arc::<Metrics>::default();
    (Cache::at(&config, scope, MEMORY, Arc::clone(&metrics)).unwrap(), metrics)
}

/// Segments reach the disk on threads of a runtime.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn name(number: u64, version: u64) -> Name {
    let object = Location { scheme: Scheme::S3, authority: "b".into(), key: number.to_string() };
    let extent = Extent { object: Arc::new(object), range: None };
    Name::new("http://store/b", &extent, Some(Version(version)))
}

/// Bytes that tell what they are of.
fn bytes(number: u64, version: u64, length: usize) -> Bytes {
    let at = |place: usize| (number * 31 + version * 7 + place as u64 * 3) as u8;
    (0..length).map(at).collect::<Vec<_>>().into()
}

fn write(cache: &Cache, number: u64, version: u64, bytes: &Bytes) -> Option<bool> {
    let (name, version) = (name(number, version), Version(version));
    cache.write(&Item { name, version, bytes: bytes.clone() }).unwrap()
}

fn read(cache: &Cache, number: u64, version: u64, most: u64) -> Option<Bytes> {
    let wanted = Wanted { name: name(number, version), version: Some(Version(version)) };
    let spot = cache.known.find(wanted.name)?;
    cache.take_now(wanted, spot, most.min(spot.length))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let ours = fs::read_dir(folder.join("stoker-cache-1")).unwrap();
    let mut files: Vec<_> = ours.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "index" || kind == "data"));
    files.sort();
    files
}

fn size(folder: &Path) -> u64 {
    files(folder).iter().map(|file| file.metadata().unwrap().len()).sum()
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        by: usize,
        number: u64,
        version: u64,
        length: usize,
    },
    Read {
        by: usize,
        number: u64,
        version: u64,
        most: u64,
    },
    Look {
        by: usize,
    },
    /// A process ends, in order or killed, and another one begins.
    Restart {
        by: usize,
        killed: bool,
        scope: u64,
    },
    Flip {
        file: prop::sample::Index,
        byte: prop::sample::Index,
        bit: u8,
    },
    Cut {
        file: prop::sample::Index,
        at: prop::sample::Index,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let by = 0_usize..3;
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (by.clone(), 0_u64..12, 1_u64..3, 0_usize..6000)
            .prop_map(|(by, number, version, length)| Step::Write { by, number, version, length }),
        6 => (by.clone(), 0_u64..12, 1_u64..3, 0_u64..9000)
            .prop_map(|(by, number, version, most)| Step::Read { by, number, version, most }),
        2 => by.clone().prop_map(|by| Step::Look { by }),
        1 => (by, any::<bool>(), 0_u64..2)
            .prop_map(|(by, killed, scope)| Step::Restart { by, killed, scope }),
        1 => (index(), index(), 0_u8..8).prop_map(|(file, byte, bit)| Step::Flip { file, byte, bit }),
        1 => (index(), index()).prop_map(|(file, at)| Step::Cut { file, at }),
    ]
}

/// The model: what was ever written, by name and version. A cache may have forgotten any of it, and
/// may never say anything else.
fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let mut caches: Vec<Cache> = (0..3).map(|scope| open(folder.path(), scope % 2).0).collect();
    let mut written: HashMap<(u64, u64), Vec<Bytes>> = HashMap::new();
    for step in steps {
        match step {
            Step::Write { by, number, version, length } => {
                let bytes = bytes(number, version, length);
                if bytes.len() as u64 <= caches[by].largest {
                    written.entry((number, version)).or_default().push(bytes.clone());
                    write(&caches[by], number, version, &bytes);
                }
            }
            Step::Read { by, number, version, most } => {
                if let Some(found) = read(&caches[by], number, version, most) {
                    let all = written.get(&(number, version)).into_iter().flatten();
                    let is_one = |bytes: &Bytes| found == bytes[..found.len().min(bytes.len())];
                    let mut all =
                        all.filter(|bytes| found.len() as u64 == most.min(bytes.len() as u64));
                    prop_assert!(all.any(is_one), "{number} in {version}: {} bytes", found.len());
                }
            }
            Step::Look { by } => {
                caches[by]
                    .known
                    .refresh(&caches[by].folder.lock().unwrap().clone().unwrap())
                    .unwrap();
            }
            Step::Restart { by, killed, scope } => {
                if !killed {
                    caches[by].seal();
                }
                // The old one is gone before the new one comes.
                drop(caches.remove(by));
                caches.insert(by, open(folder.path(), scope).0);
            }
            Step::Flip { file, byte, bit } => damage(folder.path(), file, |bytes| {
                if !bytes.is_empty() {
                    let place = byte.index(bytes.len());
                    bytes[place] ^= 1 << bit;
                }
            }),
            Step::Cut { file, at } => damage(folder.path(), file, |bytes| {
                bytes.truncate(at.index(bytes.len() + 1));
            }),
        }
        prop_assert!(size(folder.path()) <= LIMIT, "{} bytes", size(folder.path()));
    }
    Ok(())
}

/// Changes a file in its place.
fn damage(folder: &Path, which: prop::sample::Index, how: impl FnOnce(&mut Vec<u8>)) {
    let files = files(folder);
    if !files.is_empty() {
        let path = which.get(&files);
        let mut bytes = fs::read(path).unwrap();
        how(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_to_its_files_a_cache_says_what_was_written_or_nothing(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(steps)?;
    }
}

#[test]
fn what_one_process_wrote_all_others_have() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let (one, _) = open(folder.path(), 1);
    let (other, metrics) = open(folder.path(), 1);
    for number in 0..8 {
        assert_eq!(write(&one, number, 1, &bytes(number, 1, 3000)), Some(true));
        assert_eq!(write(&one, number, 1, &bytes(number, 1, 3000)), Some(false), "it is there");
    }
    other.look(&other.folder.lock().unwrap().clone().unwrap()).unwrap();
    // The one is killed, and its segment is not sealed.
    drop(one);
    let (third, _) = open(folder.path(), 2);
    for number in 0..8 {
        for cache in [&other, &third] {
            assert_eq!(read(cache, number, 1, u64::MAX).unwrap(), bytes(number, 1, 3000));
            assert_eq!(read(cache, number, 1, 10).unwrap(), bytes(number, 1, 10));
            assert_eq!(read(cache, number, 2, u64::MAX), None, "another version");
        }
    }
    assert_eq!((metrics.fetch.cache.hits.get(), metrics.fetch.cache.damaged.get()), (16, 0));
    assert_eq!(metrics.fetch.cache.hit_bytes.get(), 8 * 3010);
}

#[test]
fn every_flipped_byte_and_every_cut_costs_one_entry_at_most_and_is_counted() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let (cache, _) = open(folder.path(), 1);
    for number in 0..3 {
        write(&cache, number, 1, &bytes(number, 1, 100)).unwrap();
    }
    cache.seal();
    drop(cache);
    let [data, index] = &files(folder.path())[..] else { panic!("one segment") };
    let whole = [data, index].map(|path| (path, fs::read(path).unwrap()));
    let check = |changed: &str, few: usize| {
        let (cache, metrics) = open(folder.path(), 1);
        let read = (0..3).map(|number| (number, read(&cache, number, 1, u64::MAX)));
        let read: Vec<_> = read.collect();
        let lost = read.iter().filter(|(_, found)| found.is_none()).count();
        for (number, found) in read {
            assert!(found.is_none_or(|found| found == bytes(number, 1, 100)), "{changed}");
        }
        assert!(lost <= few, "{changed}: {lost} lost");
        if few == 1 {
            assert_eq!(metrics.fetch.cache.damaged.get(), lost as u64, "{changed}");
            let (again, metrics) = open(folder.path(), 1);
            assert_eq!(read_all(&again), 3 - lost, "{changed}");
            assert!(metrics.fetch.cache.damaged.get() <= 1, "{changed}: taken out once");
        }
    };
    for (path, bytes) in &whole {
        for place in 0..bytes.len() {
            // Without its first slot nobody knows what a segment is: it is thrown away.
            let few = if *path == index && place < SLOT as usize { 3 } else { 1 };
            let mut flipped = bytes.clone();
            flipped[place] ^= 0x10;
            fs::write(path, &flipped).unwrap();
            check(&format!("{} at {place}", path.display()), few);
            restore(&whole);
        }
        for length in (0..bytes.len()).step_by(7) {
            fs::write(path, &bytes[..length]).unwrap();
            check(&format!("{} cut to {length}", path.display()), 3);
            restore(&whole);
        }
    }
}

fn read_all(cache: &Cache) -> usize {
    (0..3).filter(|number| read(cache, *number, 1, u64::MAX).is_some()).count()
}

fn restore(files: &[(&PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn what_the_dead_left_is_counted_as_it_is_and_remains_are_removed() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let (cache, _) = open(folder.path(), 1);
    write(&cache, 0, 1, &bytes(0, 1, 500)).unwrap();
    let living = files(folder.path());
    let ours = folder.path().join("stoker-cache-1");
    // Data without an index, an index without a header, an index without data: killed in between.
    fs::write(ours.join("00000000000000aa.data"), "x").unwrap();
    fs::write(ours.join("00000000000000bb.index"), "x").unwrap();
    let header = Header { scope: 7, capacity: LIMIT, sealed: false };
    fs::write(ours.join("00000000000000cc.index"), header.to_bytes()).unwrap();
    fs::write(ours.join("0000000000000007.run"), "").unwrap();
    fs::write(ours.join("notes.txt"), "not ours").unwrap();
    let (other, _) = open(folder.path(), 2);
    assert_eq!(files(folder.path()), living, "of the living nothing is touched");
    assert!(!ours.join("0000000000000007.run").exists() && ours.join("notes.txt").exists());
    assert_eq!(read(&other, 0, 1, u64::MAX).unwrap(), bytes(0, 1, 500));
    // The living goes on, and what it reserved is not given to others.
    write(&cache, 1, 1, &bytes(1, 1, 200)).unwrap();
    assert_eq!(files(folder.path()), living);
    drop(cache);
    let _third = open(folder.path(), 2);
    let index = fs::read(&living[1]).unwrap();
    let header = Header::from_bytes(&index).unwrap();
    assert!(header.sealed, "its owner is dead");
    assert_eq!(header.capacity, size(folder.path()));
}

#[test]
fn data_that_nobody_runs_with_go_and_living_data_stay() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let fill = |cache: &Cache, from: u64| {
        let written =
            |number: &u64| write(cache, *number, 1, &bytes(*number, 1, 900)) == Some(true);
        (from..from + 100).take_while(written).count() as u64
    };
    let (one, metrics) = open(folder.path(), 1);
    let kept = fill(&one, 0);
    assert!(kept > 55, "{kept} entries of 1028 bytes in 64 KiB");
    let (other, _) = open(folder.path(), 2);
    assert_eq!(fill(&other, 1000), 0, "the one runs, and goes through its data in circles");
    assert_eq!((0..kept).filter(|it| read(&one, *it, 1, u64::MAX).is_some()).count() as u64, kept);
    assert_eq!(metrics.fetch.cache.evicted.get(), 0);
    one.seal();
    drop((one, other));
    let (other, metrics) = open(folder.path(), 2);
    // A part of the old data serves the new run too, and is kept for last.
    let serves: Vec<u64> = (20..24).collect();
    assert!(serves.iter().all(|number| read(&other, *number, 1, u64::MAX).is_some()));
    let came = (1000..1040).filter(|it| write(&other, *it, 1, &bytes(*it, 1, 900)) == Some(true));
    assert_eq!(came.count(), 40);
    assert!(metrics.fetch.cache.evicted.get() >= 36);
    assert!(serves.iter().all(|number| read(&other, *number, 1, u64::MAX).is_some()));
    assert!(size(folder.path()) <= LIMIT);
}

#[test]
fn a_limit_that_is_lowered_holds_from_the_next_start_on() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let (one, _) = open(folder.path(), 1);
    assert!((0..40).all(|number| write(&one, number, 1, &bytes(number, 1, 900)) == Some(true)));
    one.seal();
    let config = recipe::Cache { path: folder.path().display().to_string(), size: 9000 };
    let less = Cache::at(&config, 1, MEMORY, Arc::default()).unwrap();
    assert!(size(folder.path()) <= 9000);
    assert!(less.metrics.fetch.cache.evicted.get() >= 30);
    let left = |cache| (0..40).filter(|it| read(cache, *it, 1, u64::MAX).is_some()).count();
    assert!((1..=9).contains(&left(&less)));
    assert_eq!(left(&one), left(&less), "whoever runs notices nothing but misses");
    assert_eq!(one.metrics.fetch.cache.damaged.get(), 0);
}

#[test]
fn no_more_entries_are_known_and_written_than_there_is_memory_for() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let _inside = runtime.enter();
    let path = folder.path().display().to_string();
    let config = recipe::Cache { path, size: 1 << 20 };
    let with = |places| {
        let memory = CacheMemory { places, ..MEMORY };
        Cache::at(&config, 1, memory, Arc::default()).unwrap()
    };
    let served = |cache: &Cache| (0..60).filter(|it| read(cache, *it, 1, 100).is_some()).count();
    let few = with(20 * 80);
    let written = (0..40).filter(|it| write(&few, *it, 1, &bytes(*it, 1, 100)) == Some(true));
    assert_eq!(written.count(), 20);
    assert_eq!(served(&few), 20);
    few.seal();
    // Others have more, and who has less is served as much as it knows.
    let many = with(1 << 20);
    assert!((40..60).all(|it| write(&many, it, 1, &bytes(it, 1, 100)) == Some(true)));
    many.seal();
    assert_eq!((served(&many), served(&with(30 * 80))), (40, 30));
}
