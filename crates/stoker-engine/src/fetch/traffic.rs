//! What is known of one store while it is read from, and what follows from it: how many requests it
//! may be sent, whether a failed one may be repeated soon, when one is late, what rate is usual, how
//! far apart two parts may lie that one request brings.
//!
//! All of it forgets, is bounded in size, and is learned anew by each fetcher.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Duration, Instant};

use crate::error::Result;
use crate::metrics::{Metrics, Recent};

use super::Urgency;
use super::congestion::{Congestion, SIZES};
use super::failure::{Condition, Failure};
use super::quota::{Quota, Spare};
use super::slots::{Coming, Lane, Slot, Slots};

/// What a body may stop for, as a multiple of the time in which 95 % of first bytes come; and at
/// least, as long as little is known, and how few answers tell.
const PAUSE: f64 = 8.0;
pub(super) const LEAST_PAUSE: Duration = Duration::from_millis(500);
const UNKNOWN_PAUSE: Duration = Duration::from_secs(2);
const TELLING_FEW: u32 = 8;
/// So many bodies that came whole tell that a store is well.
const WELL: usize = 8;
/// Bytes between two parts that are read through rather than asked around, as long as nothing is
/// measured: 15 ms at 70 MB/s. What is measured stays within the bounds.
const UNMEASURED_GAP: u64 = 1 << 20;
const GAP: (u64, u64) = (64 << 10, 4 << 20);
/// Share of requests that are in time.
const IN_TIME: f64 = 0.95;
/// How many times to first byte, and rates, must be known before one is called usual.
const LEAST_KNOWN: u32 = 40;
/// How many of them count, about.
const MEMORY: u32 = 2000;
/// Bodies that tell a rate: the first packets of a connection are no measure.
const TELLING: u64 = 64 << 10;

/// How much a request asks for, in classes whose times to first byte are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Up to 64 KiB: lines, headers, sizes.
    Small = 0,
    /// Up to 1 MiB: images.
    Medium = 1,
    /// The time is that of the body.
    Large = 2,
    /// A whole object: mostly an image.
    Untold = 3,
}

impl Size {
    pub(super) fn of(bytes: Option<u64>) -> Self {
        match bytes {
            None => Self::Untold,
            Some(0..=0x1_0000) => Self::Small,
            Some(..=0x10_0000) => Self::Medium,
            Some(_) => Self::Large,
        }
    }
}

#[derive(Debug)]
pub(super) struct Traffic {
    lane: Lane,
    slots: Arc<Slots>,
    metrics: Arc<Metrics>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    congestion: Congestion,
    quota: Quota,
    spare: Spare,
    /// Bodies that may be given up.
    bodies: Spare,
    /// When those bodies began that came whole and began last.
    whole: Vec<Instant>,
    /// Microseconds to first byte of first requests.
    first_bytes: [Recent; SIZES],
    /// Bytes per second of bodies.
    rates: Recent,
}

impl Traffic {
    pub(super) fn new(lane: Lane, bound: u32, slots: Arc<Slots>, metrics: Arc<Metrics>) -> Self {
        let known = Known {
            congestion: Congestion::new(bound),
            quota: Quota::default(),
            spare: Spare::of_requests(),
            bodies: Spare::of_bodies(),
            whole: Vec::with_capacity(WELL),
            first_bytes: [(); SIZES].map(|()| Recent::new(MEMORY)),
            rates: Recent::new(MEMORY),
        };
        metrics.fetch.limit.add(known.congestion.limit() as u64);
        Self { lane, slots, metrics, known: Mutex::new(known) }
    }

    /// Waits for a slot.
    pub(super) async fn slot(&self, urgency: Urgency, coming: Coming) -> Result<Slot> {
        let limit = self.known().congestion.limit();
        self.slots.take(self.lane, limit, urgency, coming).await
    }

    /// The store gave what a request that was sent then asked for.
    pub(super) fn answered(&self, sent: Instant, size: Size) {
        let first_byte = sent.elapsed();
        self.metrics.fetch.first_byte.add(micros(first_byte));
        self.metrics.fetch.first_bytes.add(first_byte);
        let wanted = self.slots.wanted(self.lane);
        self.known().quota.answered();
        self.adapt(|congestion| congestion.answered(sent, first_byte, size as usize, wanted));
    }

    /// The store told a request that was sent then to slow down.
    pub(super) fn refused(&self, sent: Instant) {
        self.metrics.fetch.throttled.add(1);
        self.adapt(|congestion| congestion.refused(sent, Instant::now()));
    }

    fn adapt(&self, learn: impl FnOnce(&mut Congestion)) {
        let mut known = self.known();
        let before = known.congestion.limit();
        learn(&mut known.congestion);
        let after = known.congestion.limit();
        let gauge = &self.metrics.fetch.limit;
        gauge.add(after.saturating_sub(before) as u64);
        gauge.sub(before.saturating_sub(after) as u64);
        drop(known);
        if after != before {
            self.slots.allow(self.lane, after);
        }
    }

    /// A request has failed: how the store bears a retry, if there is one.
    pub(super) fn condition_after(&self, failure: &Failure) -> Condition {
        self.known().quota.spend(failure)
    }

    /// A first request is sent: from when on it is late, if that is known and a second one may help.
    pub(super) fn sent(&self, size: Size) -> Option<Duration> {
        let mut known = self.known();
        known.spare.sent();
        if size == Size::Large {
            return None;
        }
        let late = known.first_bytes[size as usize].quantile(IN_TIME, LEAST_KNOWN)?;
        Some(Duration::from_secs_f64(late / 1e6))
    }

    /// The first byte of a first request came then, or did not come until then.
    pub(super) fn waited(&self, size: Size, waited: Duration) {
        self.known().first_bytes[size as usize].add(micros(waited));
    }

    /// A first request was not late.
    pub(super) fn in_time(&self) {
        self.known().spare.in_time();
    }

    /// One is late: whether there may be a second one.
    pub(super) fn late(&self) -> bool {
        self.known().spare.late()
    }

    /// A second one was not sent after all.
    pub(super) fn give_back(&self) {
        self.known().spare.give_back();
    }

    /// A body begins.
    pub(super) fn begins(&self) {
        self.known().bodies.sent();
    }

    /// How long a body may stop, but for `most`, before it is looked at.
    pub(super) fn pause(&self, most: Duration) -> Duration {
        let usual = self.known().first_byte(IN_TIME);
        let pause = usual.map_or(UNKNOWN_PAUSE, |usual| usual.mul_f64(PAUSE).max(LEAST_PAUSE));
        pause.min(most)
    }

    /// A body stopped or only drips, since then: whether it may be given up for another request. It
    /// counts once as late.
    pub(super) fn stops(&self, since: Instant, is_early: bool, counted: &mut bool) -> bool {
        let mut known = self.known();
        if !std::mem::replace(counted, true) {
            known.bodies.count_late();
        }
        is_early && (known.is_well(since) || known.bodies.still_late())
    }

    /// Bytes that one connection carries in the time that a request takes to be answered.
    pub(super) fn gap(&self) -> u64 {
        let known = self.known();
        match (known.first_byte(0.5), known.rates.quantile(0.5, TELLING_FEW)) {
            (Some(first_byte), Some(rate)) => {
                ((first_byte.as_secs_f64() * rate) as u64).clamp(GAP.0, GAP.1)
            }
            _ => UNMEASURED_GAP,
        }
    }

    /// A body that began then came whole.
    pub(super) fn came(&self, bytes: u64, began: Instant) {
        let time = began.elapsed().as_secs_f64().max(1e-6);
        let mut known = self.known();
        known.bodies.in_time();
        if known.whole.len() < WELL {
            known.whole.push(began);
        } else if let Some(first) = known.whole.iter_mut().min() {
            *first = began.max(*first);
        }
        if bytes >= TELLING {
            known.rates.add(bytes as f64 / time);
        }
    }

    /// The usual rate of a body, in bytes per second.
    pub(super) fn usual_rate(&self) -> Option<f64> {
        self.known().rates.quantile(0.5, LEAST_KNOWN)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whether bodies that began since then came whole, and few are late.
    fn is_well(&self, since: Instant) -> bool {
        let enough = self.whole.len() == WELL && self.whole.iter().all(|began| *began > since);
        enough && !self.bodies.is_slow()
    }

    /// The time that this share of first bytes does not exceed, of the smallest requests of which many
    /// are known, or at least some.
    fn first_byte(&self, share: f64) -> Option<Duration> {
        let of_these = |least| self.first_bytes.iter().find_map(|it| it.quantile(share, least));
        let known = of_these(LEAST_KNOWN).or_else(|| of_these(TELLING_FEW));
        known.map(|micros| Duration::from_secs_f64(micros / 1e6))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let limit = self.known().congestion.limit();
        self.metrics.fetch.limit.sub(limit as u64);
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic() -> Traffic {
        let metrics = Arc::<Metrics>::default();
        Traffic::new(0, 64, Slots::new(64, Arc::clone(&metrics)), metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn the_gap_is_what_a_connection_carries_while_a_request_waits() {
        let (traffic, milliseconds) = (traffic(), Duration::from_millis);
        tokio::time::advance(milliseconds(1000)).await;
        let ago = |time| Instant::now() - milliseconds(time);
        for number in 0..TELLING_FEW {
            assert_eq!(traffic.gap(), UNMEASURED_GAP, "{number}");
            traffic.waited(Size::Untold, milliseconds(30));
            traffic.came(1 << 20, ago(20));
            traffic.came(TELLING - 1, ago(1));
        }
        // 30 ms at 1 MiB in 20 ms; what is known is known to a tenth.
        let is_near = |kib: u64| (1300..1800).contains(&kib);
        assert!(is_near(traffic.gap() >> 10), "{}", traffic.gap());
        // One answer that hangs is not the rule.
        traffic.waited(Size::Untold, Duration::from_secs(50));
        assert!(is_near(traffic.gap() >> 10), "{}", traffic.gap());
        (0..100).for_each(|_| traffic.waited(Size::Small, milliseconds(1)));
        assert_eq!(traffic.gap(), GAP.0);
    }

    #[test]
    fn a_body_may_stop_for_as_long_as_the_store_is_slow_and_no_longer_than_is_configured() {
        let traffic = traffic();
        let pause = || traffic.pause(Duration::from_secs(10));
        assert_eq!(pause(), UNKNOWN_PAUSE);
        (0..TELLING_FEW).for_each(|_| traffic.waited(Size::Small, Duration::from_millis(30)));
        assert_eq!(pause(), LEAST_PAUSE);
        (0..100).for_each(|_| traffic.waited(Size::Small, Duration::from_millis(250)));
        let known = pause().as_secs_f64();
        assert!((1.8..2.2).contains(&known), "{known}");
        (0..1000).for_each(|_| traffic.waited(Size::Small, Duration::from_secs(3)));
        assert_eq!(pause(), Duration::from_secs(10));
        // Where many bodies stop, the store is slow.
        let given_up = (0..100).filter(|_| traffic.stops(Instant::now(), true, &mut false)).count();
        assert_eq!(given_up, 4, "what there is at first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_alone_is_given_up_whatever_is_left() {
        let (traffic, since) = (traffic(), Instant::now());
        while traffic.stops(since, true, &mut true) {}
        tokio::time::advance(LEAST_PAUSE).await;
        let comes = || traffic.came(TELLING, Instant::now());
        (1..WELL).for_each(|_| comes());
        assert!(!traffic.stops(since, true, &mut true), "few others came");
        comes();
        // One that began before it is no proof, and takes none away.
        traffic.came(TELLING, since);
        assert!(traffic.stops(since, true, &mut true));
        assert!(!traffic.stops(since, false, &mut true), "a later attempt");
        assert!(!traffic.stops(Instant::now(), true, &mut true), "they began before it stopped");
        // Where many stop it is the store, whatever comes between them.
        let alone = (0..100).filter(|_| traffic.stops(since, true, &mut false)).count();
        assert!((20..50).contains(&alone), "{alone}");
    }

    #[test]
    fn many_answers_tell_more_than_few_small_ones() {
        let (traffic, milliseconds) = (traffic(), Duration::from_millis);
        (0..TELLING_FEW).for_each(|_| traffic.waited(Size::Small, milliseconds(400)));
        assert!(traffic.pause(milliseconds(9000)) > milliseconds(2500));
        (0..LEAST_KNOWN).for_each(|_| traffic.waited(Size::Untold, milliseconds(30)));
        assert_eq!(traffic.pause(milliseconds(9000)), LEAST_PAUSE);
    }
}
