//! Credentials that end, held so that a run does not notice.
//!
//! They are had anew well before they end, by one read while the others go on with the old ones,
//! and at once where the store says that they have ended. However many reads wait, one of them
//! asks; the others take what it got, be it a failure. Credentials that are still good outlive a
//! service that is not there for a while.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;

use super::super::failure::{Again, Failure};

/// How long before their end credentials are had anew, at most; a fifth of their life otherwise.
const AHEAD: Duration = Duration::from_mins(5);
/// Shortest time between two askings that nothing forces.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time until a source that failed is asked again, while the old credentials are good.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// For how long a source that has no credentials is not asked again: the reads that wait behind it
/// fail at once.
const UNCONFIGURED_FOR: Duration = Duration::from_secs(10);

/// Credentials as a source gives them.
#[derive(PartialEq, Eq)]
pub(in crate::fetch) struct Obtained<C> {
    pub(in crate::fetch) credential: C,
    /// How long they are good; `None` for as long as nobody takes them back.
    pub(in crate::fetch) life: Option<Duration>,
    /// When to ask again, where the source does not tell their end.
    pub(in crate::fetch) look: Option<Duration>,
    /// What to do where the store no longer takes them and the source has no others.
    pub(in crate::fetch) remedy: Remedy,
}

/// What to do about credentials that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fetch) struct Remedy {
    /// Whether the source may have others later.
    pub(in crate::fetch) renews: bool,
    /// What the operator can do.
    pub(in crate::fetch) hint: String,
}

/// Credentials to sign one request with, and which they are.
pub(in crate::fetch) struct Lent<C> {
    pub(in crate::fetch) credential: Arc<C>,
    pub(in crate::fetch) number: u64,
}

/// Credentials of one source.
pub(in crate::fetch) struct Renewing<C> {
    state: Mutex<State<C>>,
    /// Held by the one who asks.
    asking: tokio::sync::Mutex<()>,
    metrics: Arc<Metrics>,
}

struct State<C> {
    held: Option<Held<C>>,
    failed: Option<(Instant, Failure)>,
}

struct Held<C> {
    credential: Arc<C>,
    number: u64,
    /// When to have them anew.
    renew: Option<Instant>,
    end: Option<Instant>,
    /// What the store has said, if it does not take them, or no longer.
    refused: Option<Failure>,
    remedy: Remedy,
}

impl<C> Held<C> {
    fn is_good(&self, now: Instant) -> bool {
        self.refused.is_none() && self.end.is_none_or(|end| now < end)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.refused.is_some() || self.renew.is_some_and(|renew| renew <= now)
    }

    fn lend(&self) -> Lent<C> {
        Lent { credential: Arc::clone(&self.credential), number: self.number }
    }
}

impl<C: PartialEq> Renewing<C> {
    pub(in crate::fetch) fn new(metrics: Arc<Metrics>) -> Self {
        let state = Mutex::new(State { held: None, failed: None });
        Self { state, asking: tokio::sync::Mutex::default(), metrics }
    }

    /// Credentials that are good now, as far as anyone knows; `obtain` has them from their source.
    pub(in crate::fetch) async fn get<F>(
        &self,
        obtain: impl FnOnce() -> F,
    ) -> Result<Lent<C>, Failure>
    where
        F: Future<Output = Result<Obtained<C>, Failure>>,
    {
        let came = Instant::now();
        if let Some(lent) = self.state().good(came, false) {
            return Ok(lent);
        }
        // While someone asks for new ones, the old ones do.
        let mut asking = self.asking.try_lock().ok();
        if asking.is_none() {
            let old = self.state().good(came, true);
            if let Some(lent) = old {
                return Ok(lent);
            }
            asking = Some(self.asking.lock().await);
        }
        let now = Instant::now();
        if let Some(lent) = self.state().good(now, false) {
            return Ok(lent);
        }
        if let Some(failure) = self.state().known_failure(came, now) {
            return Err(failure);
        }
        let obtained = obtain().await;
        let (before, settled) = {
            let mut state = self.state();
            let before = state.held.as_ref().map(|held| held.number);
            (before, state.settle(obtained, Instant::now()))
        };
        drop(asking);
        if let (Some(before), Ok(lent)) = (before, &settled) {
            self.metrics.fetch.credential_renewals.add(lent.number - before);
        }
        settled
    }

    /// The store does not take the credentials of that number, or no longer.
    pub(in crate::fetch) fn refused(&self, number: u64, failure: &Failure) {
        if let Some(held) = &mut self.state().held
            && held.number == number
        {
            held.refused = Some(failure.clone());
        }
    }

    /// How long what is held is good, where that is known, and whether its source has others later.
    pub(in crate::fetch) fn outlook(&self) -> Option<(Option<Duration>, bool)> {
        let state = self.state();
        let Held { end, remedy, .. } = state.held.as_ref()?;
        Some((end.map(|end| end.saturating_duration_since(Instant::now())), remedy.renews))
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: PartialEq> State<C> {
    fn good(&self, now: Instant, though_due: bool) -> Option<Lent<C>> {
        let held = self.held.as_ref()?;
        (held.is_good(now) && (though_due || !held.is_due(now))).then(|| held.lend())
    }

    /// What another found while this one waited, or not long before.
    fn known_failure(&self, came: Instant, now: Instant) -> Option<Failure> {
        let (since, failure) = self.failed.as_ref()?;
        let stands = failure.again == Again::Never && now - *since < UNCONFIGURED_FOR;
        (stands || *since > came).then(|| failure.clone())
    }

    fn settle(
        &mut self,
        obtained: Result<Obtained<C>, Failure>,
        now: Instant,
    ) -> Result<Lent<C>, Failure> {
        let failure = match obtained {
            Ok(obtained) => return self.take(obtained, now),
            Err(failure) => failure,
        };
        if let Some(held) = self.held.as_mut().filter(|held| held.is_good(now)) {
            let left = held.end.map_or(LONGEST_PAUSE, |end| end - now);
            held.renew = Some(now + (left / 5).clamp(PAUSE, LONGEST_PAUSE));
            return Ok(held.lend());
        }
        self.failed = Some((now, failure.clone()));
        Err(failure)
    }

    fn take(&mut self, obtained: Obtained<C>, now: Instant) -> Result<Lent<C>, Failure> {
        let Obtained { credential, life, look, remedy } = obtained;
        if let Some(held) = &self.held
            && let Some(refused) = &held.refused
            && *held.credential == credential
        {
            let failure = repeated(refused, &held.remedy);
            self.failed = Some((now, failure.clone()));
            return Err(failure);
        }
        let number = match &self.held {
            // The same again, with another end: what was signed with it goes on.
            Some(held) if *held.credential == credential => held.number,
            Some(held) => held.number + 1,
            None => 0,
        };
        // What is said to have ended already is tried: the clock of this machine may be wrong.
        let life = life.map(|life| life.max(PAUSE));
        let held = Held {
            credential: Arc::new(credential),
            number,
            renew: life
                .map(|life| life.saturating_sub((life / 5).min(AHEAD)).max(PAUSE))
                .or(look)
                .map(|later| now + later),
            end: life.map(|life| now + life),
            refused: None,
            remedy,
        };
        self.failed = None;
        Ok(self.held.insert(held).lend())
    }
}

/// What the store said of credentials that their source gives again. Only those that have ended may
/// have others later.
fn repeated(refused: &Failure, remedy: &Remedy) -> Failure {
    match (refused.again, remedy.renews) {
        (Again::Never, _) => refused.clone(),
        (_, true) => Failure { again: Again::Later, ..refused.clone() }.hint(&remedy.hint),
        (_, false) => Failure { again: Again::Never, ..refused.clone() }.hint(&remedy.hint),
    }
}

/// Nothing of what is held.
impl<C> fmt::Debug for Renewing<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewing").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::FetchErrorKind;

    fn obtained(credential: u32, life: Option<u64>) -> Obtained<u32> {
        let remedy = Remedy { renews: life.is_some(), hint: "log in".to_owned() };
        Obtained { credential, life: life.map(Duration::from_secs), look: None, remedy }
    }

    fn expired() -> Failure {
        let failure = Failure::permanent(FetchErrorKind::Denied, "they have expired");
        Failure { again: Again::Soon, ..failure }
    }

    fn state() -> (State<u32>, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (State { held: None, failed: None }, move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn a_hundred_reads_that_wait_ask_once_before_and_once_after_a_refusal() {
        let (renewing, asked) = (Renewing::new(Arc::default()), AtomicU32::new(0));
        let obtain = || async {
            // Long enough for all the others to come.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            Ok(obtained(asked.fetch_add(1, Ordering::Relaxed), None))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for round in 0..3 {
            let all = (0..100).map(|_| renewing.get(obtain));
            for lent in runtime.block_on(futures::future::join_all(all)) {
                let Ok(lent) = lent else { panic!("no credentials") };
                assert_eq!((*lent.credential, lent.number), (round, u64::from(round)));
                renewing.refused(lent.number, &expired());
            }
            assert_eq!(asked.load(Ordering::Relaxed), round + 1);
            assert_eq!(renewing.metrics.fetch.credential_renewals.get(), u64::from(round));
        }
    }

    #[test]
    fn reads_that_wait_for_a_failure_share_it() {
        let (renewing, asked) = (Renewing::<u32>::new(Arc::default()), AtomicU32::new(0));
        let obtain = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(Failure::transient("no answer"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all = (0..50).map(|_| renewing.get(obtain));
        let all = runtime.block_on(futures::future::join_all(all));
        assert!(all.iter().all(|it| it.as_ref().is_err_and(|it| it.reason == "no answer")));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // One that comes later asks again.
        assert!(runtime.block_on(renewing.get(obtain)).is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn credentials_are_due_before_they_end_and_good_until_then() {
        let (mut state, at) = state();
        for (life, due) in [(3600, 3300), (100, 80), (1, 1)] {
            assert!(state.settle(Ok(obtained(life as u32, Some(life))), at(0)).is_ok());
            let good = |seconds, though_due| state.good(at(seconds), though_due).is_some();
            assert!(good(due - 1, false) && !good(due, false), "{life}");
            assert!(good(life - 1, true) && !good(life, true), "{life}");
        }
        // Ended already, says a clock: they are tried all the same.
        assert!(state.settle(Ok(obtained(0, Some(0))), at(0)).is_ok());
        assert!(state.good(at(0), false).is_some());
        // Without an end there is nothing to renew.
        assert!(state.settle(Ok(obtained(7, None)), at(0)).is_ok());
        assert!(state.good(at(1_000_000), false).is_some());
    }

    #[test]
    fn a_source_that_is_away_is_not_noticed_before_the_credentials_end() {
        let (mut state, at) = state();
        let away = || Err(Failure::transient("no answer"));
        assert!(state.settle(Ok(obtained(1, Some(1000))), at(0)).is_ok());
        let lent = state.settle(away(), at(850));
        assert!(lent.is_ok_and(|lent| *lent.credential == 1));
        // It is left alone for a while, and then asked again.
        assert!(state.good(at(879), false).is_some() && state.good(at(880), false).is_none());
        assert!(state.settle(away(), at(1001)).is_err());
        assert!(state.known_failure(at(1000), at(1001)).is_some());
        assert!(state.known_failure(at(1002), at(1002)).is_none());
        assert!(state.settle(Ok(obtained(2, Some(1000))), at(1003)).is_ok());
        assert!(state.known_failure(at(1000), at(1003)).is_none());
    }

    #[test]
    fn where_there_are_no_credentials_nobody_asks_again_for_a_while() {
        let (mut state, at) = state();
        let none = Failure::permanent(FetchErrorKind::Unconfigured, "none");
        assert!(state.settle(Err(none), at(5)).is_err());
        assert!(state.known_failure(at(14), at(14)).is_some());
        assert!(state.known_failure(at(15), at(15)).is_none());
    }

    #[test]
    fn what_the_store_refuses_and_the_source_repeats_is_an_error_with_its_remedy() {
        let unknown = || Failure::permanent(FetchErrorKind::Denied, "who?").hint("check it");
        for (life, said, again, hint) in [
            (None, expired(), Again::Never, "log in"),
            (Some(3600), expired(), Again::Later, "log in"),
            (Some(3600), unknown(), Again::Never, "check it"),
        ] {
            let renewing = Renewing::new(Arc::default());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let get = || runtime.block_on(renewing.get(|| async { Ok(obtained(70, life)) }));
            renewing.refused(get().map_err(|failure| failure.reason).unwrap().number, &said);
            let Err(failure) = get() else { panic!() };
            assert_eq!((failure.kind, failure.again), (FetchErrorKind::Denied, again));
            assert_eq!((&failure.reason, failure.hint.as_deref()), (&said.reason, Some(hint)));
            assert!(!format!("{renewing:?}").contains("70"));
        }
    }
}
