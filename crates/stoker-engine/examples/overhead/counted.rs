//! How often a loader counts something for a batch, and how long each of these takes by itself while another
//! thread does the same to the same metrics. The number of events follows from the report of a real run, and
//! the time of an event is measured a million times: what comes out is a bound, and as good on a noisy machine.

use std::cell::RefCell;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoker_engine::metrics::{
    Blame, CoreTime, Metrics, Phase, Progress, Report, Room, Wait, nanos,
};

use crate::turns::turn;
use crate::{BATCH, loader};

thread_local! {
    /// Each worker has its own.
    static CORES: RefCell<CoreTime> = RefCell::new(CoreTime::of_this_thread());
}

/// How often an event is timed.
const TIMES: u32 = 1_000_000;

/// Rows of an image that are decoded at a time, each time between two looks at the clock.
const ROWS: f64 = 8.0;

/// Samples of a batch, and how many batches are made: photos, and images that are hardly any work.
const SIZES: [(&str, RangeInclusive<usize>, u64); 2] = [
    ("photos of a megapixel", 990_000..=1_010_000, 48),
    ("images of 6,000 pixels", 5_000..=7_000, 768),
];

/// Of each size of images: events, their times, and all of them as a share of a batch.
pub(crate) fn bound(model: &str) -> Value {
    let events = events();
    let runs = SIZES.map(|(name, pixels, batches)| {
        let rows = (*pixels.end() as f64).sqrt();
        let counted = counted(model, pixels, batches, rows);
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
    json!({ "runs": runs })
}

/// What is counted for a batch, and the processor time of one, its store's included.
struct Counted {
    events: Vec<(&'static str, f64)>,
    cpu_nanos: f64,
}

/// How often each event happens for a batch, by what a loader reports that is as far ahead at the end as it was
/// at the beginning.
fn counted(model: &str, pixels: RangeInclusive<usize>, batches: u64, rows: f64) -> Counted {
    let (loader, _store) = loader(model, pixels, &json!({"prefetch": 4}));
    turn(&loader, batches);
    let (before, spent, after) = (loader.report(), turn(&loader, batches), loader.report());
    let mean = |of: &dyn Fn(&Report) -> u64| (of(&after) - of(&before)) as f64 / batches as f64;
    let items = |room: Room| {
        let of =
            |report: &Report| report.rooms.iter().find(|it| it.room == room).map(|it| it.items);
        mean(&|report| of(report).unwrap_or(0))
    };
    let (samples, images) = (BATCH as f64, items(Room::Image));
    // Parse and measure each sample, fill each image, map and write each batch.
    let tasks = 2.0 * samples + images + 2.0;
    Counted {
        events: vec![
            ("a room's work", Room::ALL.into_iter().map(items).sum()),
            ("rows decoded", images * rows / ROWS),
            ("a task", tasks),
            // At most: a worker that is kept busy never idles.
            ("a worker idles", tasks),
            ("a request", mean(&|report| report.fetch.requests)),
            ("a batch", 1.0),
        ],
        cpu_nanos: spent as f64 / batches as f64,
    }
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
        CORES.with_borrow_mut(|cores| cores.count(&metrics.cores));
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
