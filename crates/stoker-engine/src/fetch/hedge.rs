//! One request that was sent once, or twice.
//!
//! A small read takes as long as its first byte. Where that does not come by the time at which 95 %
//! of the store's answers to requests of that size have come, a second request is sent, and the
//! first good answer is taken; the other request is dropped with its connection, before any of its
//! body was read. HTTP/1 has one request to a connection, so the second one goes another way. It
//! waits for a slot like every request, before those that are as urgent.
//!
//! How long first requests take is learned from all of them, also from those that lost: else the
//! late ones would be missing, and ever earlier ones be called late.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use tokio::time::{Instant, timeout, timeout_at};

use crate::metrics::{Cause, Metrics};

use super::Urgency;
use super::attempt::{Ask, open};
use super::failure::{Again, Failure};
use super::flight::{InFlight, Limits};
use super::opened::Opened;
use super::slots::{Coming, Slot};
use super::store::Store;
use super::traffic::{Size, Traffic};

/// What is needed to send a request, twice if need be.
pub(super) struct Sending {
    pub(super) store: Arc<Store>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ask: Ask,
    pub(super) urgency: Urgency,
    pub(super) limits: Limits,
    pub(super) hedged: bool,
}

impl Sending {
    /// Sends the request in that slot and takes the headers of its answer.
    pub(super) async fn send(self, slot: Slot) -> Result<Opened, Failure> {
        let until = self.limits.until;
        let answer = timeout_at(until, self.race(slot)).await;
        answer.unwrap_or_else(|_| {
            Err(Failure::transient("no answer came in time").because(Cause::Stalled))
        })
    }

    async fn race(&self, slot: Slot) -> Result<Opened, Failure> {
        if matches!(*self.store, Store::Files) {
            return self.one(slot).await;
        }
        let (size, since) = (self.ask.size(), Instant::now());
        let late = self.traffic.sent(size).filter(|_| self.hedged);
        let mut first = Box::pin(self.one(slot));
        if let Some(late) = late {
            if let Ok(answer) = timeout(late, &mut first).await {
                self.traffic.in_time();
                return self.learned(answer, size, since);
            }
            if self.traffic.late() {
                let second = pin!(self.second());
                return match select(first, second).await {
                    Either::Left((answer, second)) => match self.learned(answer, size, since) {
                        // The second one is another attempt already.
                        Err(failure) if failure.again == Again::Soon => {
                            second.await.map_err(|_| failure)
                        }
                        answer => answer,
                    },
                    Either::Right((Ok(opened), _)) => {
                        self.traffic.waited(size, since.elapsed());
                        self.metrics.fetch.hedges_won.add(1);
                        Ok(opened)
                    }
                    Either::Right((Err(_), first)) => self.learned(first.await, size, since),
                };
            }
            self.metrics.fetch.hedges_denied.add(1);
        }
        let answer = first.await;
        self.learned(answer, size, since)
    }

    fn learned(
        &self,
        answer: Result<Opened, Failure>,
        size: Size,
        since: Instant,
    ) -> Result<Opened, Failure> {
        if answer.is_ok() {
            self.traffic.waited(size, since.elapsed());
        }
        answer
    }

    /// A second request; its place among the spare ones is given back if it is not sent.
    async fn second(&self) -> Result<Opened, Failure> {
        let unsent = Unsent(&self.traffic);
        let slot = self.traffic.slot(self.urgency, Coming::Again).await;
        let slot = slot.map_err(|closed| Failure::transient(closed.to_string()))?;
        std::mem::forget(unsent);
        self.metrics.fetch.hedges.add(1);
        self.one(slot).await
    }

    async fn one(&self, slot: Slot) -> Result<Opened, Failure> {
        let (metrics, traffic) = (Arc::clone(&self.metrics), Arc::clone(&self.traffic));
        let begin = match *self.store {
            Store::Files => InFlight::local,
            Store::Remote(_) => InFlight::begin,
        };
        let in_flight = begin(metrics, traffic, slot, self.limits);
        let in_flight = in_flight.asking(&self.ask, self.urgency.batch);
        open(Arc::clone(&self.store), self.ask.clone(), in_flight).await
    }
}

struct Unsent<'a>(&'a Traffic);

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}
