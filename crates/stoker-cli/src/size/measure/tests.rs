//! What follows from two reports, of made-up ones.

use serde_json::{from_value, json};
use stoker_engine::metrics::Metrics;

use super::*;

/// Ten batches of two samples in as many seconds with two workers, after a report of nothing.
fn taken(change: impl FnOnce(&mut Report)) -> Taken {
    let before = Report { process_seconds: 0.0, ..Metrics::default().report() };
    let mut after = before.clone();
    (after.samples, after.workers, after.fetch.requests) = (20, 2, 40);
    (after.worker_seconds, after.process_seconds) = (4.0, 5.0);
    after.rooms = vec![RoomReport {
        room: Room::Fetch,
        busy_seconds: 2.0,
        items: 40,
        bytes: 1000,
        window_busy: 0.0,
        window_items_per_second: 0.0,
        window_bytes_per_second: 0.0,
    }];
    change(&mut after);
    Taken { batches: 10, seconds: 10.0, shipped_bytes: 70, before, after }
}

fn advise(report: &mut Report, limit: Limit) {
    let advice = json!({
        "limit": limit, "words": "", "workers_busy": 0.2, "requests_in_flight": 1.0,
        "bytes_per_second": 1.0, "bytes_blocked_seconds": 1.0, "memory_blocked_seconds": 0.0,
        "pixels_blocked_seconds": 0.0,
    });
    report.advice = Some(from_value(advice).unwrap());
}

#[track_caller]
fn near<const N: usize>(is: [f64; N], expected: [f64; N]) {
    assert!(is.iter().zip(expected).all(|(is, due)| (is - due).abs() < 1e-9), "{is:?}");
}

#[test]
fn what_is_brought_in_for_later_batches_is_not_of_those_that_were_taken() {
    let alone = taken(|_| ());
    let of = |limit| {
        cost(
            &taken(|report| {
                advise(report, limit);
                report.fetch.requests = 60;
                report.rooms[0].bytes = 4000;
            }),
            &alone,
        )
    };
    let found = of(Limit::Latency);
    near([found.samples, found.shipped_bytes], [2.0, 7.0]);
    near([found.requests, found.fetched_bytes], [4.0, 100.0]);
    near([found.request_seconds, found.alone_seconds], [0.05, 1.0]);
    // A second for six requests, of which four are its own; or for 400 bytes, of which 100 are.
    let paces = [Limit::Latency, Limit::Throttling, Limit::Bandwidth]
        .map(|limit| of(limit).flat_out.seconds);
    near(paces, [1.0, 2.0 / 3.0, 0.25]);
}

#[test]
fn where_requests_in_flight_are_the_limit_all_that_were_seen_are_counted() {
    let flat_out = taken(|report| {
        advise(report, Limit::Requests);
        report.samples = 60;
        report.fetch.requests = 90;
        report.rooms[0].busy_seconds = 3.2;
    });
    let found = cost(&flat_out, &taken(|_| ()));
    // 130 requests for 80 samples, of which six are in a batch; and 5.2 seconds for them.
    near([found.requests, found.request_seconds], [6.0 * 130.0 / 80.0, 5.2 / 130.0]);
    near([found.flat_out.seconds], [1.0]);
}

#[test]
fn what_others_had_of_the_cores_is_left_out_where_it_is_much() {
    let of = |delayed| cost(&taken(|report| report.worker_delay_seconds = delayed), &taken(|_| ()));
    let (little, much) = (of(1.0), of(3.0));
    near([little.worker_seconds, little.delayed_seconds], [0.4, 0.0]);
    near([much.worker_seconds, much.delayed_seconds], [0.1, 0.3]);
    near([little.other_seconds, much.other_seconds], [0.1, 0.4]);
    assert_eq!(much.flat_out.limit, Limit::Trainer);
    // A worker counts its delay when its task ends, and the time as it passes.
    near([of(5.0).worker_seconds, of(5.0).delayed_seconds], [0.0, 0.4]);
}

#[test]
fn busy_workers_are_what_limits_and_others_are_not() {
    let limit = |worked, advised| {
        let flat_out = taken(|report| {
            report.worker_seconds = worked;
            advise(report, advised);
        });
        cost(&flat_out, &taken(|_| ())).flat_out.limit
    };
    assert_eq!(limit(18.0, Limit::Latency), Limit::Cores);
    assert_eq!(limit(4.0, Limit::Latency), Limit::Latency);
    assert_eq!(limit(4.0, Limit::BusyMachine), Limit::Trainer);
}
