//! What is known of one store while it is read from, and what follows from it: how many requests it
//! may be sent, whether a failed one may be repeated soon, when one is late, what rate is usual.
//!
//! All of it forgets, is bounded in size, and is learned anew by each fetcher.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Duration, Instant};

use crate::error::Result;
use crate::metrics::{Metrics, Recent};

use super::Urgency;
use super::congestion::{Congestion, SIZES};
use super::failure::Again;
use super::quota::{Quota, Spare};
use super::slots::{Coming, Lane, Slot, Slots};

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
            spare: Spare::default(),
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

    /// Whether a failed request may be repeated soon.
    pub(super) fn may_retry(&self, again: Again) -> bool {
        self.known().quota.spend(again)
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

    /// A body came, in that time.
    pub(super) fn came(&self, bytes: u64, time: Duration) {
        if bytes >= TELLING {
            let rate = bytes as f64 / time.as_secs_f64().max(1e-6);
            self.known().rates.add(rate);
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

impl Drop for Traffic {
    fn drop(&mut self) {
        let limit = self.known().congestion.limit();
        self.metrics.fetch.limit.sub(limit as u64);
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
