//! A request in flight: what it holds, counts and tells a trace, and its exchange with the store.
//!
//! A request is counted when it was sent: one that found no connection was not, and what is read of
//! a local file is none.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse};
use tokio::time::{Duration, Instant, timeout};

use crate::metrics::{Argument, Cause, Count, Counter, Metrics, Room, nanos};
use crate::sample::Location;

use super::attempt::Ask;
use super::failure::{Again, Failure};
use super::refusal::{Refusal, Secrets, refusal};
use super::slots::Slot;
use super::store::Remote;
use super::traffic::{Size, Traffic};

/// How long an attempt may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Without a byte.
    pub(super) silence: Duration,
    /// At most until then.
    pub(super) until: Instant,
    /// For how long a body is borne that can't be there until then.
    pub(super) patience: Duration,
    /// Whether a body that stops or drips may be given up: not in the later attempts, as an object that
    /// always comes slowly would never be read.
    pub(super) is_early: bool,
}

/// A request in flight: holds one of the slots and counts, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    metrics: Arc<Metrics>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) limits: Limits,
    pub(super) since: Instant,
    is_request: bool,
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
    /// Begins a request to a store.
    pub(super) fn begin(
        metrics: Arc<Metrics>,
        traffic: Arc<Traffic>,
        slot: Slot,
        limits: Limits,
    ) -> Self {
        metrics.fetch.in_flight.add(1);
        let mut it = Self::local(metrics, traffic, slot, limits);
        it.is_request = true;
        it.count();
        it
    }

    /// Begins to read a local file.
    pub(super) fn local(
        metrics: Arc<Metrics>,
        traffic: Arc<Traffic>,
        slot: Slot,
        limits: Limits,
    ) -> Self {
        let since = Instant::now();
        Self { metrics, traffic, limits, since, is_request: false, asked: None, _slot: slot }
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
    fn stalled(&self, reason: String) -> Failure {
        self.metrics.fetch.stalls.add(1);
        Failure::transient(reason).because(Cause::Stalled)
    }

    /// The client gave up; its limit on silence is ours, and either may notice first.
    pub(super) fn broken(&self, error: &HttpError) -> Failure {
        if error.kind() == HttpErrorKind::Timeout {
            self.metrics.fetch.stalls.add(1);
        }
        Failure::of_way(error)
    }

    pub(super) fn silent(&self, limit: Duration) -> Failure {
        self.stalled(format!("timed out (no byte in {limit:?})"))
    }

    /// Too little came; the last of it was so long ago.
    pub(super) fn drips(&self, rate: f64, quiet: Duration) -> Failure {
        if rate == 0.0 {
            return self.silent(Duration::from_millis(quiet.as_millis() as u64));
        }
        self.stalled(format!("the body came at {rate:.0} bytes a second"))
    }

    /// Sends a signed request and takes the headers of its answer, good or bad.
    pub(super) async fn exchange(
        &self,
        remote: &Remote,
        request: HttpRequest,
        size: Size,
    ) -> Result<Result<HttpResponse, Refusal>, Failure> {
        let (since, secrets) = (Instant::now(), Secrets::of(&request));
        let mut sent = Sent { requests: &self.metrics.fetch.requests, is_sent: true };
        let answer = timeout(self.limits.silence, remote.client.execute(request)).await;
        let answer = answer.map_err(|_| self.silent(self.limits.silence))?;
        let answer = answer.map_err(|error| {
            sent.is_sent = error.kind() != HttpErrorKind::Connect;
            self.broken(&error)
        })?;
        drop(sent);
        if let Some(asked) = &self.asked {
            asked.first_byte.get_or_init(Instant::now);
        }
        if answer.status().is_success() {
            self.traffic.answered(since, size);
            return Ok(Ok(answer));
        }
        let refused = refusal(remote, answer, &secrets).await;
        if refused.failure.again == Again::Later {
            self.traffic.refused(since);
        }
        Ok(Err(refused))
    }

    /// Takes note that another request repeats one, within the same attempt.
    pub(super) fn repeats(&self, cause: Cause) {
        self.metrics.fetch.retried(cause);
    }
}

/// Counts a request, also one that is given up before it is answered.
struct Sent<'a> {
    requests: &'a Counter,
    is_sent: bool,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.requests.add(u64::from(self.is_sent));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.fetch.in_flight.sub(u64::from(self.is_request));
        self.metrics.room(Room::Fetch).busy_nanos.add(nanos(self.since.elapsed()));
        self.count();
        if let Some(asked) = &self.asked {
            self.metrics.trace.request(self.since.into_std(), asked.told(self.since));
        }
    }
}

impl Asked {
    fn told(&self, since: Instant) -> Vec<(&'static str, Argument)> {
        let mut told = vec![("batch", self.batch.into()), ("object", self.object.shown().into())];
        match self.range {
            Some(Range { start, end: Ask::END }) => {
                told.push(("range", format!("{start}-").into()));
            }
            Some(Range { start, end }) => {
                told.push(("range", format!("{start}-{}", end - 1).into()));
            }
            None => (),
        }
        if let Some(came) = self.first_byte.get() {
            told.push(("first byte after us", nanos(*came - since).div_ceil(1000).into()));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Location, Scheme};

    #[test]
    fn a_trace_is_told_no_signature() {
        let key = "a.jpg?X-Amz-Signature=abc".to_owned();
        let object = Location { scheme: Scheme::Https, authority: "me:pass@host".into(), key };
        let first_byte = OnceLock::new();
        let asked = Asked { batch: 7, object: Arc::new(object), range: None, first_byte };
        let told = format!("{:?}", asked.told(Instant::now()));
        assert!(told.contains("https://host/a.jpg?…"), "{told}");
    }
}
