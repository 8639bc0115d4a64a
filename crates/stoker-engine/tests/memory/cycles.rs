//! Nothing is left of a loader that was closed: loaders are opened over all kinds of images and bad
//! samples, on a store whose requests fail, drained for some batches of some epochs, and closed; the
//! heap, the mappings, open files and threads of the process are then what they were before.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use stoker_engine::loader::{Loader, Next};
use stoker_engine::metrics::Report;
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;
use stoker_s3::{Backend, Config, Fault, Faults, Rule, Server};

use crate::alone::alone;
use crate::common::{self, root};

/// Loaders of a run; what is made once in a process is made by the first ones.
const CYCLES: usize = 9;
const WARM: usize = 4;
/// Bytes that a loader may leave behind on average: what the allocator's counts move by.
const LEFT: i64 = 8 << 10;

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Bytes that were allocated and not freed.
    heap: i64,
    mappings: usize,
    files: usize,
    threads: usize,
}

impl Held {
    /// Once the threads of what was closed have ended; these may still be on their way out.
    fn now(threads: usize) -> Self {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        for _ in 0..1000 {
            if count("/proc/self/task") <= threads {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Self {
            heap: heap(),
            mappings: fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            files: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }
}

/// Bytes of the heaps in use, those of all threads: what the C library has of the system, but for what
/// is free in them.
fn heap() -> i64 {
    let text = malloc_info();
    // Behind the heaps one by one stand the sums.
    let sums = &text[text.rfind("</heap>").unwrap()..];
    let size = |what: &str| {
        let begin = sums.find(what).unwrap();
        let size = sums[begin..].split("size=\"").nth(1).unwrap();
        size.split('"').next().unwrap().parse::<i64>().unwrap()
    };
    let free = size("<total type=\"fast\"") + size("<total type=\"rest\"");
    size("<system type=\"current\"") + size("<total type=\"mmap\"") - free
}

/// The C library's own account of its heaps.
#[expect(unsafe_code, reason = "the C library gives it in no other way")]
fn malloc_info() -> String {
    let mut text = vec![0_u8; 1 << 16];
    // SAFETY: the file is there until it is closed, and the text has room for what is read into it.
    let length = unsafe {
        let file = libc::tmpfile();
        assert!(!file.is_null(), "there is room for a file");
        assert_eq!(libc::malloc_info(0, file), 0);
        libc::rewind(file);
        let length = libc::fread(text.as_mut_ptr().cast(), 1, text.len(), file);
        libc::fclose(file);
        length
    };
    assert!(length < text.len(), "it was read to its end");
    text.truncate(length);
    String::from_utf8(text).unwrap()
}

/// All that images can be, and what no sample can be made of.
fn samples() -> BTreeMap<String, Vec<u8>> {
    let mut objects = BTreeMap::new();
    for folder in ["images", "odd", "jpeg"] {
        let entries = fs::read_dir(root().join("testdata/golden").join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.extension().is_some_and(|it| it != "py")) {
            let name = format!("{folder}-{}", path.file_name().unwrap().display());
            objects.insert(name, fs::read(path).unwrap());
        }
    }
    let photo = objects["images-a_444.jpg"].clone();
    objects.insert("cut.jpg".into(), photo[..photo.len() / 2].to_vec());
    objects.insert("page.jpg".into(), b"<html>403</html>".to_vec());
    let mut lines: Vec<String> = objects.keys().map(|it| common::chat(it, "assistant")).collect();
    lines.push(common::chat("nowhere.jpg", "assistant"));
    lines.push("{\"messages\": [".into());
    lines.push(common::chat("data:image/png;base64,AAAA", "assistant"));
    objects.insert("train.jsonl".into(), lines.join("\n").into_bytes());
    objects
}

/// What goes wrong on the way, with one request in ten.
fn faults() -> Faults {
    let faults = [
        Fault::Status { status: 500, retry_after: None, as_date: false },
        Fault::Reset { at: None },
        Fault::HangUp { at: None },
        Fault::Short { at: None, told: true },
        Fault::ErrorBody {},
    ];
    let rules = faults.map(|fault| Rule { share: 0.02, ..Rule::new(fault) });
    Faults { seed: 5, rules: rules.into(), ..Faults::default() }
}

/// A loader's life, from its store to the end of the store.
fn cycle(samples: &BTreeMap<String, Vec<u8>>, indexes: &Path) -> Report {
    let config = Config { unsigned: true, ..Config::default() };
    let server = Server::start(&config, Backend::memory()).unwrap();
    for (key, bytes) in samples {
        server.put("data", key, bytes.clone()).unwrap();
    }
    server.set_faults(&faults()).unwrap();
    let recipe = json!({
        "model": common::model("qwen3-vl"),
        "dataset": {"source": "s3://data/train.jsonl", "index-dir": indexes},
        "fetch": {"endpoint": server.endpoint(), "anonymous": true, "attempts": 12},
        "plan": {"epochs": 2},
        "vision": {"pixels": "u8", "min-pixels": 4096, "max-pixels": 16384},
        "pack": {"batch-size": 4},
        "engine": {"memory": "64MiB", "workers": 2, "bad-sample-limit": 1.0},
    });
    let loader =
        Loader::open(Recipe::from_value(recipe).unwrap(), Rank { index: 0, of: 1 }).unwrap();
    // Not all there is: a loader is closed while it is at work.
    for _ in 0..samples.len() / 3 {
        match loader.next(Duration::from_mins(1)).unwrap() {
            Next::Batch(batch) => drop(batch),
            _ => panic!("a batch within a minute"),
        }
    }
    loader.close();
    loader.report()
}

/// Looks after each of so many loaders; `each` is called after them.
fn looks(cycles: usize, mut each: impl FnMut()) -> Vec<Held> {
    let (samples, indexes) = (samples(), tempfile::tempdir().unwrap());
    let threads = Held::now(usize::MAX).threads;
    let mut looks = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let report = cycle(&samples, indexes.path());
        assert!(report.fetch.retries > 0, "requests fail");
        assert!(report.flaws.len() >= 4, "samples are bad: {:?}", report.flaws);
        let held = &report.memory;
        assert_eq!((held.compressed_bytes, held.arena_bytes, held.leased_bytes), (0, 0, 0));
        assert_eq!(report.workers, 0);
        drop(report);
        each();
        looks.push(Held::now(threads));
        println!("{:?}", looks.last().unwrap());
    }
    looks
}

/// Whether there are more and more mappings. They come and go by some, as the C library's heaps do, and
/// now and then one more of these is needed: that is a step, not a rise.
fn is_rising(looks: &[Held]) -> bool {
    let thirds: Vec<_> = looks.chunks(looks.len().div_ceil(3)).collect();
    thirds.windows(2).all(|pair| {
        let mappings = |look: &Held| look.mappings;
        pair[0].iter().map(mappings).max() < pair[1].iter().map(mappings).min()
    })
}

/// What grows once all that is made once is made.
fn growing(looks: &[Held]) -> Vec<&'static str> {
    let (first, last) = (looks[WARM - 1], looks[looks.len() - 1]);
    let loaders = looks.len() - WARM;
    let found = [
        ("heap", last.heap - first.heap > LEFT * loaders as i64),
        ("mappings", last.mappings > first.mappings + loaders / 2 && is_rising(&looks[WARM - 1..])),
        ("files", last.files > first.files),
        ("threads", last.threads > first.threads),
    ];
    found.into_iter().filter_map(|(name, grows)| grows.then_some(name)).collect()
}

#[test]
#[ignore = "looks at its process: run by the test below, alone"]
fn all_doors() {
    let looks = looks(CYCLES, || ());
    assert!(growing(&looks).is_empty(), "{:?} grow: {looks:#?}", growing(&looks));
}

#[test]
#[ignore = "some minutes: `cargo nextest run --release --run-ignored only -E 'test(many_loaders)'`"]
fn many_loaders() {
    let looks = looks(200, || ());
    assert!(growing(&looks).is_empty(), "{:?} grow: {looks:#?}", growing(&looks));
}

#[test]
fn loaders_that_were_closed_leave_nothing_behind() {
    println!("{}", alone("cycles::all_doors"));
}

#[test]
#[ignore = "looks at its process: run by the test below, alone"]
fn all_doors_that_leak() {
    let mut kept: Vec<(Vec<u8>, fs::File)> = Vec::new();
    let leak = || {
        let file = fs::File::open("/dev/zero").unwrap();
        (0..8).for_each(|_| map(&file));
        (vec![1; 2 * LEFT as usize], file)
    };
    // By another thread, as most of a loader's would be.
    let looks = looks(CYCLES, || {
        let thread = std::thread::Builder::new().name("leaking".into()).spawn(leak).unwrap();
        kept.push(thread.join().unwrap());
    });
    assert_eq!(growing(&looks), ["heap", "mappings", "files"], "{looks:#?}");
}

/// Maps a page of it, for ever. Pages that are of no file would become one mapping.
#[expect(unsafe_code, reason = "the C library maps")]
fn map(file: &fs::File) {
    let (null, descriptor) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: the kernel chooses a place that nothing else has.
    let page = unsafe { libc::mmap(null, 4096, libc::PROT_READ, libc::MAP_PRIVATE, descriptor, 0) };
    assert_ne!(page, libc::MAP_FAILED);
}

#[test]
fn sixteen_kilobytes_eight_mappings_and_a_file_for_each_loader_are_noticed() {
    println!("{}", alone("cycles::all_doors_that_leak"));
}
