//! How many requests a store may be sent at once: found out, up to the bound that the recipe sets.
//!
//! It begins with a few and doubles with each round trip while reads wait, since a cold prefix
//! takes some time to give its full rate. From the first sign of congestion on it grows by one each
//! round trip, and is halved by each further sign, at most once for the requests that were sent
//! since the last time. There are two signs:
//!
//! - The store says so, by 429 or 503, to more than one request in eight. A few such answers are
//!   the weather of every large store, and no reason to slow down.
//! - The time to first byte (not of bodies, as these depend on their sizes) has more than doubled:
//!   the median of a round of requests of one size, against the least of such medians. Medians do
//!   not notice a tail. If half the requests do not take less time, they were not the reason: the
//!   store itself is slower, the halving is undone, and its present time is the measure from now on.

use tokio::time::{Duration, Instant};

/// Requests at first.
const START: f64 = 16.0;
/// Share of requests that are told to slow down.
pub(super) const REFUSED: f64 = 1.0 / 8.0;
/// How many must have been told so.
const LEAST_REFUSED: f64 = 4.0;
/// The answers that count, about: those of a round trip, and at least these.
const LEAST_ROUND: f64 = 32.0;
/// Answers of which a median is taken: it varies by a tenth then, with the latencies of S3.
const ROUND: usize = 64;
/// What a median must exceed to be a sign: a multiple of the least, and some milliseconds more, as
/// shorter waits are nothing to a trainer.
const INFLATED: f64 = 2.0;
const NOTHING: f64 = 0.010;
/// How fast the least median is forgotten, for each later one.
const FORGETTING: f64 = 0.02;
/// By latency alone it does not fall below this.
const FEW: f64 = 8.0;
/// What the median must fall to for the halving to have helped.
const HELPED: f64 = 0.75;

/// The sizes that are told apart.
pub(super) const SIZES: usize = 4;

/// Limits the requests to one store.
#[derive(Debug)]
pub(super) struct Congestion {
    bound: f64,
    limit: f64,
    starting: bool,
    /// Only requests that were sent later are signs.
    halved: Option<Instant>,
    answers: f64,
    refused: f64,
    rounds: [Round; SIZES],
    trial: Option<Trial>,
}

/// Answers to requests of one size.
#[derive(Debug, Default)]
struct Round {
    /// Seconds to first byte.
    times: Vec<f64>,
    /// The least median, slowly forgotten.
    least: Option<f64>,
}

/// A halving by latency, until it is known whether it helped.
#[derive(Debug)]
struct Trial {
    limit: f64,
    median: f64,
    size: usize,
}

impl Congestion {
    pub(super) fn new(bound: u32) -> Self {
        let bound = f64::from(bound.max(1));
        Self {
            bound,
            limit: START.min(bound),
            starting: true,
            halved: None,
            answers: 0.0,
            refused: 0.0,
            rounds: Default::default(),
            trial: None,
        }
    }

    /// Requests that may be in flight.
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The store answered a request that was sent then; `wanted` is whether other reads wait.
    pub(super) fn answered(
        &mut self,
        sent: Instant,
        first_byte: Duration,
        size: usize,
        wanted: bool,
    ) {
        if !self.is_news(sent) {
            return;
        }
        self.count(0.0);
        if wanted {
            let more = if self.starting { 1.0 } else { 1.0 / self.limit };
            self.limit = (self.limit + more).min(self.bound);
        }
        let round = &mut self.rounds[size];
        round.times.push(first_byte.as_secs_f64());
        if round.times.len() == ROUND {
            let (_, median, _) = round.times.select_nth_unstable_by(ROUND / 2, f64::total_cmp);
            let median = *median;
            round.times.clear();
            self.judge(size, median, sent + first_byte);
        }
    }

    /// The store told a request that was sent then to slow down.
    pub(super) fn refused(&mut self, sent: Instant, now: Instant) {
        if !self.is_news(sent) {
            return;
        }
        self.count(1.0);
        if self.refused >= LEAST_REFUSED && self.refused > REFUSED * self.answers {
            self.trial = None;
            self.halve(1.0, now);
        }
    }

    fn count(&mut self, refused: f64) {
        let kept = 1.0 - 1.0 / self.limit.max(LEAST_ROUND);
        self.answers = self.answers * kept + 1.0;
        self.refused = self.refused * kept + refused;
    }

    fn is_news(&self, sent: Instant) -> bool {
        self.halved.is_none_or(|halved| sent > halved)
    }

    fn judge(&mut self, size: usize, median: f64, now: Instant) {
        let round = &mut self.rounds[size];
        let least = round.least.map_or(median, |least| {
            if median < least { median } else { least + (median - least) * FORGETTING }
        });
        round.least = Some(least);
        match self.trial.take() {
            Some(trial) if trial.size == size && median > HELPED * trial.median => {
                round.least = Some(median);
                self.limit = trial.limit;
                return;
            }
            Some(trial) if trial.size != size => {
                self.trial = Some(trial);
                return;
            }
            _ => {}
        }
        if median > INFLATED * least + NOTHING && self.limit > FEW {
            self.trial = Some(Trial { limit: self.limit, median, size });
            self.halve(FEW, now);
        }
    }

    fn halve(&mut self, least: f64, now: Instant) {
        self.limit = (self.limit / 2.0).max(least);
        self.starting = false;
        self.halved = Some(now);
        (self.answers, self.refused) = (0.0, 0.0);
        self.rounds.iter_mut().for_each(|round| round.times.clear());
    }
}

#[cfg(test)]
mod tests;
