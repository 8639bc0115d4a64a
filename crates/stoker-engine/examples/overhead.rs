//! What the metrics cost, which are always on: how often a loader counts something for a batch, and how long
//! each of these takes by itself while another thread does the same to the same metrics.
//!
//! A run with metrics can't be told from one without on a machine where runs differ by more than a hundredth,
//! but the two factors can be taken apart: the number of events follows from the report of a real run, and the
//! time of an event is measured a million times. `bench/overhead.py` drives it.
//!
//! cargo run --release -p stoker-engine --example overhead -- MODEL
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that can't go on stops")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoker_engine::loader::{Loader, Next};
use stoker_engine::metrics::{Blame, Metrics, Phase, Progress, Report, Room, Wait, nanos};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Server};

const BATCH: u64 = 8;
const BATCHES: u64 = 64;
const PATIENCE: Duration = Duration::from_mins(1);

/// How often an event is timed.
const TIMES: u32 = 1_000_000;

/// Rows of an image that are decoded at a time, each time between two looks at the clock.
const ROWS: f64 = 8.0;

/// Samples of a batch: photos, and images that are hardly any work.
const SIZES: [(&str, std::ops::RangeInclusive<usize>); 2] =
    [("photos of a megapixel", 990_000..=1_010_000), ("images of 6,000 pixels", 5_000..=7_000)];

fn main() {
    let model = std::env::args().nth(1).expect("the model's folder is the argument");
    let events = events();
    let runs = SIZES.map(|(name, pixels)| {
        let rows = (*pixels.end() as f64).sqrt();
        let counted = counted(&run(&model, pixels), rows);
        let cost = |(name, times): &(&str, f64)| {
            let each = events.iter().find(|(event, _)| event == name).unwrap().1;
            json!({"event": name, "times": times, "nanoseconds": each})
        };
        let all: f64 = counted
            .events
            .iter()
            .map(|(name, times)| events.iter().find(|(event, _)| event == name).unwrap().1 * times)
            .sum();
        json!({
            "batch": name,
            "events": counted.events.iter().map(cost).collect::<Vec<Value>>(),
            "metrics_nanoseconds": all,
            "batch_nanoseconds": counted.cpu_nanos,
            "share": all / counted.cpu_nanos,
        })
    });
    println!("{:#}", json!({"runs": runs}));
}

/// What is counted for a batch, and the processor time of one.
struct Counted {
    events: Vec<(&'static str, f64)>,
    cpu_nanos: f64,
}

/// How often each event happens for a batch, by what a run reports.
fn counted(report: &Report, rows: f64) -> Counted {
    let batches = report.wait.batches as f64 + 1.0;
    let items = |room: Room| {
        let found = report.rooms.iter().find(|it| it.room == room);
        found.map_or(0.0, |it| it.items as f64) / batches
    };
    let (samples, images) = (BATCH as f64, items(Room::Image));
    // Parse and measure each sample, fill each image, map and write each batch.
    let tasks = 2.0 * samples + images + 2.0;
    let meters: f64 = Room::ALL.into_iter().map(items).sum();
    let requests = report.fetch.requests as f64 / batches;
    let stages = report.stages.as_ref().unwrap();
    let cpu = stages.workers.busy_share * stages.workers.threads as f64 * stages.seconds;
    Counted {
        events: vec![
            ("a room's work", meters),
            ("rows decoded", images * rows / ROWS),
            ("a task", tasks),
            // At most: a worker that is kept busy never idles.
            ("a worker idles", tasks),
            ("a request", requests),
            ("a batch", 1.0),
        ],
        cpu_nanos: cpu * 1e9 / stages.batches as f64,
    }
}

/// A loader at full speed, on a store that answers at once.
fn run(model: &str, pixels: std::ops::RangeInclusive<usize>) -> Report {
    let server = Server::start(&Config { unsigned: true, ..Config::default() }, Backend::memory());
    let server = server.unwrap();
    for (key, bytes) in ChatDataset::new(3, 64, pixels).objects() {
        server.put("bucket", &key, bytes).unwrap();
    }
    let recipe = json!({
        "model": model,
        "dataset": {"source": format!("s3://bucket/{CHAT_KEY}")},
        "fetch": {"endpoint": server.endpoint(), "anonymous": true},
        "vision": {"pixels": "u8"},
        "pack": {"batch-size": BATCH},
    });
    let loader =
        Loader::open(Recipe::from_value(recipe).unwrap(), Rank { index: 0, of: 1 }).unwrap();
    for _ in 0..BATCHES {
        let Next::Batch(batch) = loader.next(PATIENCE).unwrap() else { panic!("no batch") };
        drop(batch);
    }
    loader.report()
}

/// Nanoseconds of each event.
fn events() -> Vec<(&'static str, f64)> {
    let work = |metrics: &Arc<Metrics>| metrics.room(Room::Text).count(Instant::now().elapsed(), 1);
    let rows = |_: &Arc<Metrics>| {
        black_box(Instant::now().elapsed());
    };
    let task = |metrics: &Arc<Metrics>| {
        let since = Instant::now();
        drop(metrics.trace.span("a task", Vec::new));
        metrics.queued_task_nanos.add(nanos(since.elapsed()));
        metrics.worker_nanos.add(nanos(since.elapsed()));
    };
    let idle = |metrics: &Arc<Metrics>| drop(metrics.occupancy.hold(|standing| &mut standing.idle));
    let request = |metrics: &Arc<Metrics>| {
        let fetch = &metrics.fetch;
        let (queued, since) = (Instant::now(), Instant::now());
        fetch.queued.add(1);
        fetch.queued_nanos.add(nanos(since - queued));
        fetch.queued.sub(1);
        fetch.requests.add(1);
        fetch.in_flight.add(1);
        let first = since.elapsed();
        fetch.first_byte.add(first.as_secs_f64() * 1e6);
        fetch.first_bytes.add(first);
        fetch.in_flight.sub(1);
        metrics.compressed_bytes.add(1);
        metrics.compressed_bytes.sub(1);
        metrics.room(Room::Fetch).count(since.elapsed(), 1);
    };
    let batch = |metrics: &Arc<Metrics>| {
        let progress = Progress::begin(Arc::clone(metrics));
        progress.want();
        progress.asked();
        for phase in [Phase::Brought, Phase::Memory, Phase::Pixels] {
            progress.enter(phase);
        }
        metrics.blamed(progress.finish());
        metrics.blamed(Blame::default());
        for counter in [&metrics.samples, &metrics.images, &metrics.tokens, &metrics.padding] {
            counter.add(1);
        }
        metrics.leased_bytes.add(1);
        metrics.leased_bytes.sub(1);
        let blocked = Duration::from_nanos(1);
        metrics.waited(Wait { blocked, wall: blocked });
        metrics.late(blocked);
    };
    vec![
        ("a room's work", timed(work)),
        ("rows decoded", timed(rows)),
        ("a task", timed(task)),
        ("a worker idles", timed(idle)),
        ("a request", timed(request)),
        ("a batch", timed(batch)),
    ]
}

/// How long an event takes, in nanoseconds, while another thread does the same.
fn timed(event: impl Fn(&Arc<Metrics>) + Sync) -> f64 {
    let metrics = Arc::<Metrics>::default();
    let (start, over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            while !over.load(Ordering::Relaxed) {
                event(&metrics);
            }
        });
        start.wait();
        let began = Instant::now();
        for _ in 0..TIMES {
            event(&metrics);
        }
        let spent = began.elapsed();
        over.store(true, Ordering::Relaxed);
        spent.as_nanos() as f64 / f64::from(TIMES)
    })
}
