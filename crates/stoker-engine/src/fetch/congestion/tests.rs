//! Signs, one by one; what they amount to is seen in the simulation of the room.

use super::*;

const MILLI: Duration = Duration::from_millis(1);

/// Answers of that many milliseconds to requests sent one after the other.
fn answers(congestion: &mut Congestion, now: &mut Instant, count: usize, millis: u32) {
    for _ in 0..count {
        congestion.answered(*now, millis * MILLI, 1, true);
        *now += MILLI;
    }
}

#[test]
fn it_begins_with_a_few_and_doubles_while_more_are_wanted() {
    let mut congestion = Congestion::new(100);
    let mut now = Instant::now();
    assert_eq!(congestion.limit(), 16);
    congestion.answered(now, MILLI, 1, false);
    assert_eq!(congestion.limit(), 16);
    answers(&mut congestion, &mut now, 16, 30);
    assert_eq!(congestion.limit(), 32);
    answers(&mut congestion, &mut now, 500, 30);
    assert_eq!(congestion.limit(), 100);
    assert_eq!(Congestion::new(3).limit(), 3);
}

#[test]
fn it_is_halved_once_for_all_that_were_in_flight_and_then_grows_by_one_a_round() {
    let mut congestion = Congestion::new(64);
    let mut now = Instant::now();
    answers(&mut congestion, &mut now, 100, 30);
    let sent = now;
    now += 30 * MILLI;
    (0..64).for_each(|_| congestion.refused(sent, now));
    assert_eq!(congestion.limit(), 32);
    now += MILLI;
    answers(&mut congestion, &mut now, 33, 30);
    assert_eq!(congestion.limit(), 33);
    let sent = now;
    now += 30 * MILLI;
    (0..64).for_each(|_| congestion.refused(sent, now));
    assert_eq!(congestion.limit(), 16);
}

#[test]
fn it_stays_above_zero_whatever_is_refused() {
    let mut congestion = Congestion::new(64);
    let mut now = Instant::now();
    for _ in 0..1000 {
        now += MILLI;
        congestion.refused(now, now);
    }
    assert_eq!(congestion.limit(), 1);
}

#[test]
fn latency_that_grows_with_the_requests_halves_them_and_other_latency_does_not() {
    let fresh = || {
        let (mut congestion, mut now) = (Congestion::new(64), Instant::now());
        answers(&mut congestion, &mut now, 10 * ROUND, 30);
        answers(&mut congestion, &mut now, ROUND, 100);
        assert_eq!(congestion.limit(), 32);
        // Those that were in flight are no news.
        answers(&mut congestion, &mut now, ROUND / 2, 100);
        (congestion, now + 200 * MILLI)
    };
    let (mut congestion, mut now) = fresh();
    answers(&mut congestion, &mut now, 2 * ROUND, 40);
    assert!((33..40).contains(&congestion.limit()), "it helped: {}", congestion.limit());
    let (mut congestion, mut now) = fresh();
    answers(&mut congestion, &mut now, 20 * ROUND, 100);
    assert_eq!(congestion.limit(), 64, "it did not");
}

#[test]
fn sizes_are_compared_with_their_like() {
    let (mut congestion, mut now) = (Congestion::new(64), Instant::now());
    answers(&mut congestion, &mut now, 10 * ROUND, 30);
    (0..10 * ROUND).for_each(|_| congestion.answered(now, 300 * MILLI, 2, true));
    assert_eq!(congestion.limit(), 64);
}
