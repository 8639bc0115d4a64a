//! A request in flight: what is counted and traced of it, from when it has a slot until its body was
//! read or it was given up.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse};
use tokio::time::{Instant, timeout};

use crate::metrics::{Argument, Count, Metrics, Room, nanos};
use crate::sample::Location;

use super::attempt::{Ask, Limits};
use super::failure::{Again, Failure};
use super::refusal::{Refusal, Secrets, refusal};
use super::slots::Slot;
use super::store::Remote;
use super::traffic::{Size, Traffic};

/// A request in flight: holds one of the slots and counts, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    metrics: Arc<Metrics>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) limits: Limits,
    pub(super) since: Instant,
    asked: Option<Asked>,
    _slot: Slot,
}

/// What is told of a request in a trace.
#[derive(Debug)]
struct Asked {
    batch: u64,
    object: Arc<Location>,
    range: Option<Range<u64>>,
    first_byte: OnceLock<Instant>,
}

impl InFlight {
    pub(super) fn begin(
        metrics: Arc<Metrics>,
        traffic: Arc<Traffic>,
        slot: Slot,
        limits: Limits,
    ) -> Self {
        metrics.fetch.requests.add(1);
        metrics.fetch.in_flight.add(1);
        let it = Self { metrics, traffic, limits, since: Instant::now(), asked: None, _slot: slot };
        it.count();
        it
    }

    /// The same, and a trace is told what is asked for, and which batch waits for it.
    pub(super) fn asking(mut self, ask: &Ask, batch: u64) -> Self {
        let asked = || {
            let (object, range) = (Arc::clone(&ask.object), ask.range.clone());
            Asked { batch, object, range, first_byte: OnceLock::new() }
        };
        self.asked = self.metrics.trace.is_on().then(asked);
        self
    }

    fn count(&self) {
        let (trace, metrics) = (&self.metrics.trace, &self.metrics);
        trace.count(Count::Requests, || metrics.fetch.in_flight.get());
        trace.count(Count::CompressedBytes, || metrics.compressed_bytes.get());
    }

    /// Nothing came for too long, or too little.
    pub(super) fn stalled(&self, reason: String) -> Failure {
        self.metrics.fetch.stalls.add(1);
        Failure::transient(reason)
    }

    /// The client gave up; its limit on silence is ours, and either may notice first.
    pub(super) fn broken(&self, error: &HttpError) -> Failure {
        if error.kind() == HttpErrorKind::Timeout {
            self.metrics.fetch.stalls.add(1);
        }
        Failure::of_way(error)
    }

    pub(super) fn silent(&self) -> Failure {
        self.stalled(format!("timed out (no byte in {:?})", self.limits.silence))
    }

    /// Sends a signed request and takes the headers of its answer, good or bad.
    pub(super) async fn exchange(
        &self,
        remote: &Remote,
        request: HttpRequest,
        size: Size,
    ) -> Result<Result<HttpResponse, Refusal>, Failure> {
        let (sent, secrets) = (Instant::now(), Secrets::of(&request));
        let answer = timeout(self.limits.silence, remote.client.execute(request)).await;
        let answer = answer.map_err(|_| self.silent())?;
        let answer = answer.map_err(|error| self.broken(&error))?;
        if let Some(asked) = &self.asked {
            asked.first_byte.get_or_init(Instant::now);
        }
        if answer.status().is_success() {
            self.traffic.answered(sent, size);
            return Ok(Ok(answer));
        }
        let refused = refusal(remote, answer, &secrets).await;
        if refused.failure.again == Again::Later {
            self.traffic.refused(sent);
        }
        Ok(Err(refused))
    }

    /// Counts another request of the same attempt.
    pub(super) fn again(&self) {
        self.metrics.fetch.requests.add(1);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.fetch.in_flight.sub(1);
        self.metrics.room(Room::Fetch).busy_nanos.add(nanos(self.since.elapsed()));
        self.count();
        if let Some(asked) = &self.asked {
            self.metrics.trace.request(self.since.into_std(), asked.told(self.since));
        }
    }
}

impl Asked {
    fn told(&self, since: Instant) -> Vec<(&'static str, Argument)> {
        let mut told =
            vec![("batch", self.batch.into()), ("object", self.object.to_string().into())];
        if let Some(Range { start, end }) = self.range {
            told.push(("range", format!("{start}-{}", end - 1).into()));
        }
        if let Some(came) = self.first_byte.get() {
            told.push(("first byte after us", nanos(*came - since).div_ceil(1000).into()));
        }
        told
    }
}
