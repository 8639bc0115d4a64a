//! How many second requests a store may be sent beside the first ones.
//!
//! [`Quota`] is for those that repeat a failed one. The numbers are those of AWS's own clients: a
//! retry costs 14 tokens, or 5 where the store asked for relief, or one where it could not be reached
//! and so was not asked, and an answer brings one back. A
//! store that fails altogether is so not asked again by everyone at once. Whoever finds no tokens
//! waits longer, but is not given up for it: a run with weeks to go outlives the store's bad minutes.
//! Whether many are asked for relief decides how fast their delays grow.
//!
//! [`Spare`] is for those that are sent before the first one has failed: because its first byte is
//! late, or because its body stopped coming. Each has a share; and there are none where twice as many
//! are late, as that is a store that is slow as a whole, and more requests would make it slower. A body
//! that stopped while others came is beyond the share: it is not the store that stopped, and the
//! request that goes on with it is a retry, which [`Quota`] may delay.

use crate::metrics::Cause;

use super::congestion::REFUSED;
use super::failure::{Again, Condition, Failure};

/// Tokens at most, and at first.
const TOKENS: f64 = 500.0;

/// The share of the latest requests that something is true of.
#[derive(Debug)]
struct OfLatest(f64);

impl OfLatest {
    fn count(&mut self, belongs: bool) {
        self.0 += (f64::from(u8::from(belongs)) - self.0) / MEMORY;
    }
}

/// Retries of requests to one store.
#[derive(Debug)]
pub(super) struct Quota {
    tokens: f64,
    /// Requests that were told to come later.
    refused: OfLatest,
}

impl Default for Quota {
    fn default() -> Self {
        Self { tokens: TOKENS, refused: OfLatest(0.0) }
    }
}

impl Quota {
    /// A request was answered.
    pub(super) fn answered(&mut self) {
        self.tokens = (self.tokens + 1.0).min(TOKENS);
        self.refused.count(false);
    }

    /// A request has failed: how the store bears a retry, if there is one.
    pub(super) fn spend(&mut self, failure: &Failure) -> Condition {
        let cost = match (failure.again, failure.cause) {
            (Again::Never, _) => return Condition::Fair,
            // Nothing was sent, so nobody had work with it.
            (_, Cause::Unreachable) => 1.0,
            (Again::Soon, _) => 14.0,
            (Again::Later, _) => 5.0,
        };
        if failure.cause == Cause::Busy {
            self.refused.count(true);
        }
        if self.tokens < cost {
            return Condition::Failing;
        }
        self.tokens -= cost;
        if self.refused.0 > REFUSED { Condition::Busy } else { Condition::Fair }
    }
}

/// Second requests per first one.
const SHARE: f64 = 0.05;
/// Bodies that are given up, per body, also where no others come: some stores fall silent for seconds
/// in one of twenty.
const BODIES: f64 = 0.10;
/// Saved for a bad moment.
const SAVED: f64 = 20.0;
/// So many times the share may be late; from there on none is repeated.
const SLOW: f64 = 2.0;
/// How many requests a share is taken over, about.
const MEMORY: f64 = 200.0;

/// Second requests to one store.
#[derive(Debug)]
pub(super) struct Spare {
    /// Second requests per first one.
    share: f64,
    tokens: f64,
    /// Requests that were late.
    late: OfLatest,
}

impl Spare {
    /// For requests whose first byte is late.
    pub(super) fn of_requests() -> Self {
        Self { share: SHARE, tokens: 0.0, late: OfLatest(SHARE) }
    }

    /// For bodies that stop coming; the first ones of all may.
    pub(super) fn of_bodies() -> Self {
        Self { share: BODIES, tokens: 4.0, late: OfLatest(SHARE) }
    }

    /// A first request is sent, or a body begins.
    pub(super) fn sent(&mut self) {
        self.tokens = (self.tokens + self.share).min(SAVED);
    }

    /// One was answered in time.
    pub(super) fn in_time(&mut self) {
        self.late.count(false);
    }

    /// One is late: whether there may be a second one.
    pub(super) fn late(&mut self) -> bool {
        self.count_late();
        self.still_late()
    }

    /// The same for one that was counted before.
    pub(super) fn still_late(&mut self) -> bool {
        let may = !self.is_slow() && self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }

    /// Counts one that is late.
    pub(super) fn count_late(&mut self) {
        self.late.count(true);
    }

    /// Whether so many are late that it is the store.
    pub(super) fn is_slow(&self) -> bool {
        self.late.0 > SLOW * self.share
    }

    /// The second one was not needed after all, and not sent.
    pub(super) fn give_back(&mut self) {
        self.tokens += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_of_a_store_that_fails_are_few_and_come_back_with_its_answers() {
        let mut quota = Quota::default();
        let failed = Failure::transient("failed");
        let busy = Failure { again: Again::Later, ..failed.clone() };
        let away = failed.clone().because(Cause::Unreachable);
        let mut may = |failure| quota.spend(failure) == Condition::Fair;
        assert_eq!((0..1000).filter(|_| may(&failed)).count(), 35);
        assert_eq!((0..10).filter(|_| may(&busy)).count(), 2);
        (0..20).for_each(|_| quota.answered());
        let mut may = |failure| quota.spend(failure) == Condition::Fair;
        assert!(may(&failed) && !may(&failed));
        assert_eq!((0..10).filter(|_| may(&away)).count(), 6);
        // One in twenty may fail for ever.
        let spent = |quota: &mut Quota| {
            (0..19).for_each(|_| quota.answered());
            quota.spend(&failed)
        };
        assert!((0..10_000).all(|_| spent(&mut quota) == Condition::Fair));
    }

    #[test]
    fn a_store_that_asks_many_for_relief_is_busy_and_one_that_asks_few_is_not() {
        let busy = Failure::transient("busy").because(Cause::Busy);
        let busy = Failure { again: Again::Later, ..busy };
        let mut quota = Quota::default();
        let mut go = |one_in, requests| {
            let ask = |number| {
                let is_refused = number % one_in == 0;
                if is_refused {
                    Some(quota.spend(&busy))
                } else {
                    quota.answered();
                    None
                }
            };
            (1..=requests).filter_map(ask).last().unwrap()
        };
        assert_eq!(go(20, 10_000), Condition::Fair);
        assert_eq!(go(5, 1000), Condition::Busy);
        assert_eq!(go(20, 1000), Condition::Fair);
        assert_eq!(go(1, 1000), Condition::Failing);
    }

    #[test]
    fn second_requests_are_one_in_twenty_at_most() {
        let mut spare = Spare::of_requests();
        let mut second = 0;
        for number in 0..10_000 {
            spare.sent();
            // Every eleventh is late.
            if number % 11 == 0 {
                second += u32::from(spare.late());
            } else {
                spare.in_time();
            }
            assert!(f64::from(second) <= 0.05 * f64::from(number + 1) + 1e-6);
        }
        assert!(second > 450, "{second}");
    }

    /// Otherwise a few bodies that are borne, and asked for again and again, were a slow store.
    #[test]
    fn one_that_is_late_for_long_counts_once() {
        let mut spare = Spare::of_bodies();
        while spare.late() {}
        assert_eq!((0..1000).filter(|_| spare.still_late()).count(), 0, "there are no tokens");
        (0..20).for_each(|_| spare.sent());
        assert!(spare.still_late() && spare.late() && !spare.still_late());
    }

    #[test]
    fn a_store_that_is_slow_as_a_whole_gets_none_until_it_is_better() {
        let mut spare = Spare::of_requests();
        let mut go = |late: fn(u32) -> bool, requests| {
            let mut second = 0;
            for number in 0..requests {
                spare.sent();
                if late(number) { second += u32::from(spare.late()) } else { spare.in_time() }
            }
            second
        };
        assert!((40..=51).contains(&go(|number| number % 20 == 0, 1000)));
        assert!(go(|_| true, 1000) <= 12);
        assert_eq!(go(|number| number % 5 == 0, 1000), 0);
        assert!(go(|number| number % 20 == 0, 1000) > 20);
    }
}
