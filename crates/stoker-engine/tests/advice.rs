//! The report names what the trainer waits for, in a run where that is known; and who does what it says
//! waits less.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, available_parallelism, sleep};
use std::time::Duration;

use serde_json::{Value, json};
use stoker_engine::loader::{Loader, Next};
use stoker_engine::metrics::{Advice, Limit, Report};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;
use stoker_engine::testing::{
    CHAT_KEY, ChatDataset, encode_jpeg, photo, scheduler_tells_of_threads,
};
use stoker_s3::{Backend, Config, Faults, Server};

const BATCHES: usize = 16;
const PATIENCE: Duration = Duration::from_mins(1);

/// Where the tests of this file share a process, they take turns: each is about what the machine is busy with.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store with some photos of so many pixels.
fn store(config: Config, pixels: std::ops::RangeInclusive<usize>) -> Server {
    let server = Server::start(&Config { unsigned: true, ..config }, Backend::memory()).unwrap();
    for (key, bytes) in ChatDataset::new(3, 64, pixels).objects() {
        server.put("bucket", &key, bytes).unwrap();
    }
    server
}

/// What a loader reports of some batches, with a trainer that takes so long for each.
fn run(server: &Server, step: Duration, more: &Value) -> Report {
    run_keeping(0, server, step, BATCHES, more)
}

/// The same of a trainer that keeps so many batches beside the one that it trains on.
fn run_keeping(
    kept: usize,
    server: &Server,
    step: Duration,
    batches: usize,
    more: &Value,
) -> Report {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.setup/models/qwen3-vl");
    let mut value = json!({
        "model": model,
        "dataset": {"source": format!("s3://bucket/{CHAT_KEY}")},
        "fetch": {"endpoint": server.endpoint(), "anonymous": true},
        "pack": {"batch-size": 4},
        "engine": {"memory": "128MiB"},
    });
    for (section, keys) in more.as_object().unwrap() {
        for (key, setting) in keys.as_object().unwrap() {
            value[section][key] = setting.clone();
        }
    }
    let recipe = Recipe::from_value(value).unwrap();
    let loader = Loader::open(recipe, Rank { index: 0, of: 1 }).unwrap();
    until_the_tokenizer_is_built();
    let mut held = VecDeque::new();
    for _ in 0..batches {
        let Next::Batch(batch) = loader.next(PATIENCE).unwrap() else { panic!("no batch") };
        held.push_back(batch);
        sleep(step);
        if held.len() > kept {
            held.pop_front();
        }
    }
    loader.report()
}

/// Building it takes a core for longer than some of these trainers run.
fn until_the_tokenizer_is_built() {
    let is_building = || {
        let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
        threads.any(|thread| {
            let name = std::fs::read_to_string(thread.unwrap().path().join("comm"));
            name.is_ok_and(|name| name.starts_with("stoker-tokenize"))
        })
    };
    while is_building() {
        sleep(Duration::from_millis(5));
    }
}

fn advice(report: &Report) -> &Advice {
    report.advice.as_ref().expect("there were enough batches")
}

fn wait(report: &Report) -> f64 {
    report.wait.window_ratio.unwrap()
}

/// The first run is limited by that and says so; another, which does what is said, waits half. What else
/// the machine does can only add to its wait, so that it may try three times.
#[track_caller]
fn helps(limited: &Report, limit: Limit, says: &str, helped: impl Fn() -> Report) {
    let advice = advice(limited);
    assert_eq!(advice.limit, limit, "{limited}");
    assert!(advice.words.contains(says), "{}", advice.words);
    assert!(limited.to_string().contains(&advice.words), "{limited}");
    let workers = &limited.stages.as_ref().expect("there were two batches").workers;
    let idle = workers.input_share + workers.memory_share + workers.others_share;
    let accounted = workers.busy_share + idle + workers.trainer_share;
    assert!((0.95..1.05).contains(&accounted), "all that workers did is told: {limited}");
    let tries: Vec<_> =
        (0..3).map(|_| helped()).take_while(|it| wait(it) >= wait(limited) / 2.0).collect();
    assert!(tries.len() < 3, "{limited}\nand then\n{}", tries[2]);
}

fn slow() -> Config {
    Config { first_byte: Some(Duration::from_millis(100)), ..Config::default() }
}

#[test]
fn a_slow_trainer_is_the_limit() {
    let _turn = turn();
    let server = store(Config::default(), 4_000..=8_000);
    let report = run(&server, Duration::from_millis(120), &json!({}));
    assert_eq!(advice(&report).limit, Limit::Trainer, "{report}");
}

#[test]
fn a_store_with_slow_answers_is_helped_by_working_further_ahead() {
    let _turn = turn();
    let server = store(slow(), 4_000..=8_000);
    let step = Duration::from_millis(100);
    let limited = run(&server, step, &json!({"engine": {"prefetch": 0}}));
    helps(&limited, Limit::Latency, "raise engine.prefetch", || {
        run(&server, step, &json!({"engine": {"prefetch": 16}}))
    });
    let blamed = advice(&limited);
    assert!(blamed.bytes_blocked_seconds > blamed.pixels_blocked_seconds, "{limited}");
}

#[test]
fn too_few_requests_are_helped_by_more() {
    let _turn = turn();
    let server = store(slow(), 4_000..=8_000);
    let step = Duration::from_millis(60);
    let limited = run(&server, step, &json!({"fetch": {"concurrency": 2}}));
    helps(&limited, Limit::Requests, "raise fetch.concurrency", || {
        run(&server, step, &json!({"fetch": {"concurrency": 64}}))
    });
}

#[test]
fn a_narrow_network_is_helped_by_smaller_images() {
    let _turn = turn();
    let narrow = || Config { total_bandwidth: Some(400_000), ..Config::default() };
    // Else all that the run needs may be there before its first batch is.
    let (step, few) = (Duration::from_millis(60), json!({"engine": {"prefetch": 4}}));
    let large = store(narrow(), 60_000..=80_000);
    let small = store(narrow(), 4_000..=8_000);
    let limited = run(&large, step, &few);
    helps(&limited, Limit::Bandwidth, "use smaller images", || run(&small, step, &few));
}

#[test]
fn busy_workers_are_the_limit_until_the_trainer_is_slower() {
    let _turn = turn();
    let server = store(Config::default(), 900_000..=1_000_000);
    let workers = json!({"engine": {"workers": 1, "memory": "1GiB"}});
    let limited = run(&server, Duration::ZERO, &workers);
    helps(&limited, Limit::Cores, "more cores", || {
        run(&server, Duration::from_millis(400), &workers)
    });
}

/// Threads that have all cores to do nothing with, until it is dropped.
struct Others(Arc<AtomicBool>);

impl Others {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..available_parallelism().unwrap().get() {
            let over = Arc::clone(&over);
            let spin = move || while !over.load(Ordering::Relaxed) {};
            Builder::new().name("other".to_owned()).spawn(spin).unwrap();
        }
        Self(over)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two workers make batches faster than the trainer takes them, as long as nobody else has all cores.
#[test]
fn workers_whose_cores_others_have_are_helped_by_an_end_of_these() {
    let _turn = turn();
    if !scheduler_tells_of_threads() {
        return; // then nothing is known of it, and nothing said
    }
    let server = store(Config::default(), 900_000..=1_000_000);
    let two = json!({"engine": {"memory": "1GiB", "workers": 2}});
    let pace = run(&server, Duration::ZERO, &two).stages.unwrap();
    let step = Duration::from_secs_f64(1.5 * pace.seconds / pace.batches as f64);
    let others = Others::start();
    let limited = run(&server, step, &two);
    drop(others);
    helps(&limited, Limit::BusyMachine, "others have the cores", || run(&server, step, &two));
    let workers = &limited.stages.as_ref().unwrap().workers;
    assert!(workers.delayed_share > workers.busy_share / 3.0, "{limited}");
    assert!(limited.to_string().contains("workers had work and no core for"), "{limited}");
}

/// The arenas hold six of these batches, and the trainer has all of them while it trains, and lets go of one
/// before it asks: so the next one is begun when it is asked for, by one worker of two.
#[test]
fn a_trainer_that_keeps_batches_is_helped_by_more_memory() {
    let _turn = turn();
    let server = store(Config::default(), 4_000..=8_000);
    let (width, height) = (512, 480);
    server
        .put("bucket", "one.jpg", encode_jpeg(&photo(1, width, height), width, height, 90))
        .unwrap();
    let words =
        json!([{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "Yes."}]);
    let line = json!({"messages": words, "images": ["one.jpg"]}).to_string() + "\n";
    server.put("bucket", "same.jsonl", line.repeat(16)).unwrap();
    let run = |memory: &str| {
        let recipe = json!({
            "dataset": {"source": "s3://bucket/same.jsonl"},
            "pack": {"batch-size": 1},
            "engine": {"memory": memory, "workers": 2},
        });
        run_keeping(5, &server, Duration::from_millis(8), 48, &recipe)
    };
    let limited = run("64MiB");
    helps(&limited, Limit::Memory, "raise engine.memory", || run("1GiB"));
    let workers = &limited.stages.as_ref().unwrap().workers;
    assert!(workers.memory_share > workers.input_share + workers.others_share, "{limited}");
}

#[test]
fn a_store_that_refuses_requests_is_helped_by_a_higher_limit() {
    let _turn = turn();
    let throttled = |rate: f64| {
        let faults = Faults::from_json(&json!({"throttle": {"rate": rate}}).to_string()).unwrap();
        store(Config { faults, ..Config::default() }, 4_000..=8_000)
    };
    // Else all that the run needs is there before its first batch is.
    let (step, few) = (Duration::from_millis(30), json!({"engine": {"prefetch": 4}}));
    let limited = run(&throttled(30.0), step, &few);
    helps(&limited, Limit::Throttling, "ask for a higher limit", || {
        run(&throttled(5500.0), step, &few)
    });
}

/// Of 32 images one has 32 megapixels, which one worker decodes while the other has nothing to do.
#[test]
fn single_large_images_are_helped_by_a_limit_to_them() {
    let _turn = turn();
    let server = store(Config::default(), 4_000..=8_000);
    let (width, height) = (6_400, 5_000);
    let huge = encode_jpeg(&photo(1, width, height), width, height, 50);
    for number in (0..64).step_by(32) {
        server.put("bucket", &format!("images/{number:06}.jpg"), huge.clone()).unwrap();
    }
    let run = |most: u64| {
        let recipe = json!({
            "pack": {"batch-size": 1},
            "image": {"max-pixels": most},
            "vision": {"max-pixels": 100_000},
            "engine": {"memory": "1GiB", "workers": 2},
        });
        run_keeping(0, &server, Duration::from_millis(4), 96, &recipe)
    };
    let limited = run(100_000_000);
    let workers = &limited.stages.as_ref().unwrap().workers;
    assert!(workers.others_share > workers.input_share + workers.memory_share, "{limited}");
    helps(&limited, Limit::LargeImage, "image.max-pixels", || run(4_000_000));
}
