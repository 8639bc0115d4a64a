//! One attempt that failed: what it means, whether another may help, and what to tell the operator.
//!
//! [`Tries`] counts the attempts of one read and chooses the delays between them: full jitter over
//! a doubling span, from 50 ms for failures of the way and 1 s where the store asks for relief or
//! where many requests fail; or what the store says. It ends the read in time. The span of a store that
//! asks few for relief stays for some attempts, and catches up then: that it asked the same read twice or
//! three times is chance.

use std::error::Error as _;
use std::io;
use std::ops::Range;

use object_store::client::{HttpError, HttpErrorKind};
use tokio::time::{Duration, Instant};

use crate::error::{Error, FetchError, FetchErrorKind, too_many_files};
use crate::metrics::Cause;
use crate::recipe;
use crate::sample::Location;

use super::Urgency;
use super::address::NotPublic;
use super::slots::Coming;

/// Longest delay before another attempt.
const LONGEST_DELAY: Duration = Duration::from_secs(20);
/// Longest delay on the store's word.
const LONGEST_TOLD: Duration = Duration::from_mins(1);

/// So many attempts of a read may fail by chance.
const BY_CHANCE: u32 = 3;

/// Over how long those are spread, at least, who are told the same.
const LEAST_SPREAD: Duration = Duration::from_millis(100);

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FetchErrorKind,
    pub(super) again: Again,
    /// What a retry is counted as.
    pub(super) cause: Cause,
    pub(super) status: Option<u16>,
    pub(super) reason: String,
    pub(super) hint: Option<String>,
    /// What the store calls the request.
    pub(super) request_id: Option<String>,
    /// How long to wait, as the store says.
    pub(super) wait: Option<Duration>,
}

/// Whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// No.
    Never,
    /// Yes: the way failed.
    Soon,
    /// Yes, when the store has had time to recover.
    Later,
}

/// How a store bears it that a request is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Few fail.
    Fair,
    /// It asks many for relief.
    Busy,
    /// So many fail that none is made soon.
    Failing,
}

impl Again {
    fn base(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Soon => Some(Duration::from_millis(50)),
            Self::Later => Some(Duration::from_secs(1)),
        }
    }
}

impl Failure {
    /// One that another attempt can't mend.
    pub(super) fn permanent(kind: FetchErrorKind, reason: impl Into<String>) -> Self {
        let (again, cause, reason) = (Again::Never, Cause::Wrong, reason.into());
        Self { kind, again, cause, status: None, reason, hint: None, request_id: None, wait: None }
    }

    /// One that another attempt may mend: an answer that is not what was asked for, as long as
    /// nothing else is said.
    pub(super) fn transient(reason: impl Into<String>) -> Self {
        Self { again: Again::Soon, ..Self::permanent(FetchErrorKind::Transient, reason) }
    }

    pub(super) fn because(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The last one that there was time for.
    fn too_late(self, deadline: Duration) -> Self {
        let reason = format!("{}; fetch.deadline of {deadline:?} is over", self.reason);
        let hint = self.hint.unwrap_or_else(|| "raise it if the store may be away longer".into());
        Self { reason, hint: Some(hint), ..self }
    }

    /// No answer, or one that broke off.
    pub(super) fn of_way(error: &HttpError) -> Self {
        let (mut reasons, mut files) = (Vec::new(), None);
        let mut source = error.source();
        while let Some(error) = source {
            if let Some(refused) = error.downcast_ref::<NotPublic>() {
                return Self::permanent(FetchErrorKind::Forbidden, refused.to_string())
                    .hint(NotPublic::HINT);
            }
            files = files.or_else(|| error.downcast_ref().and_then(too_many_files));
            if let Some(failure) = untrusted(error) {
                return failure;
            }
            let reason = error.to_string();
            // Layers repeat each other.
            if reasons.last() != Some(&reason) {
                reasons.push(reason);
            }
            source = error.source();
        }
        let (what, cause) = match error.kind() {
            HttpErrorKind::Connect => ("can't connect", Cause::Unreachable),
            HttpErrorKind::Timeout => ("timed out", Cause::Stalled),
            _ => ("the connection failed", Cause::Connection),
        };
        let reason = format!("{what} ({})", reasons.join(": "));
        let failure = Self::transient(reason).because(cause);
        match (files, error.kind()) {
            (Some(files), _) => failure.hint(files),
            (None, HttpErrorKind::Connect) => failure.hint("check the endpoint and the network"),
            _ => failure,
        }
    }

    /// A local file that can't be read.
    pub(super) fn of_file(error: &io::Error) -> Self {
        use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound, PermissionDenied};
        match error.kind() {
            NotFound | NotADirectory | InvalidFilename => {
                Self::permanent(FetchErrorKind::NotFound, "no such file")
            }
            PermissionDenied => Self::permanent(FetchErrorKind::Denied, error.to_string())
                .hint("check the permissions of the file and its folders"),
            _ => {
                let failure = Self::transient(error.to_string()).because(Cause::Failed);
                Self { hint: too_many_files(error), ..failure }
            }
        }
    }
}

/// A certificate that this machine has no reason to trust: another attempt meets the same one.
fn untrusted(error: &(dyn std::error::Error + 'static)) -> Option<Failure> {
    let mut error = error;
    // Each layer of a connection may put it into an error of I/O of its own.
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() else { return None };
    let reason = format!("the store's certificate is not trusted ({why:?})");
    Some(Failure::permanent(FetchErrorKind::Unconfigured, reason).hint(
        "for a store with an authority of its own, set fetch.ca-file to its certificate (PEM)",
    ))
}

/// The attempts of one read.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    urgency: Urgency,
    object: &'a Location,
    range: Option<Range<u64>>,
    limit: u32,
    failed: u32,
    /// How long all of it may take, and so until when; that is known from the first request on.
    deadline: Duration,
    until: Option<Instant>,
}

impl<'a> Tries<'a> {
    pub(super) fn new(
        config: &recipe::Fetch,
        urgency: Urgency,
        object: &'a Location,
        range: Option<Range<u64>>,
    ) -> Self {
        let recipe::Fetch { attempts: limit, deadline, .. } = *config;
        Self { urgency, object, range, limit, failed: 0, deadline, until: None }
    }

    /// What is read.
    pub(super) fn object(&self) -> &'a Location {
        self.object
    }

    /// How soon the read is needed, a first attempt and a late one alike.
    pub(super) fn urgency(&self) -> Urgency {
        self.urgency
    }

    pub(super) fn coming(&self) -> Coming {
        if self.failed > 0 { Coming::Again } else { Coming::Anew }
    }

    /// Until when the read must be done; asked when its first request can be sent.
    pub(super) fn until(&mut self) -> Instant {
        *self.until.get_or_insert_with(|| Instant::now() + self.deadline)
    }

    /// The same, if there was a request.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.until
    }

    /// How long it has taken since its first request was sent.
    pub(super) fn took(&self) -> Duration {
        let begun = self.until.map(|until| until - self.deadline);
        begun.map_or(Duration::ZERO, |begun| Instant::now().saturating_duration_since(begun))
    }

    /// Whether most attempts are still to come.
    pub(super) fn are_early(&self) -> bool {
        self.failed < self.limit / 2
    }

    /// Time that was spent waiting for something else than the store.
    pub(super) fn excuse(&mut self, waited: Duration) {
        self.until = self.until.map(|until| until + waited);
    }

    /// The next part of it has time of its own.
    pub(super) fn renew(&mut self) {
        self.until = None;
    }

    /// Counts a failed attempt: how long to wait before the next, or the end. `condition` is that of the
    /// store, `chance` from 0 to 1.
    pub(super) fn failed(
        &mut self,
        failure: Failure,
        condition: Condition,
        chance: f64,
    ) -> Result<Duration, Error> {
        self.failed += 1;
        let again = match (condition, failure.again) {
            (Condition::Failing, Again::Soon) => Again::Later,
            (_, again) => again,
        };
        let Some(base) = again.base().filter(|_| self.failed < self.limit) else {
            return Err(self.error(failure));
        };
        let doubled = match (condition, again) {
            // Twice as fast then, so that all attempts take about as long.
            (Condition::Fair, Again::Later) => 2 * self.failed.saturating_sub(BY_CHANCE),
            _ => self.failed - 1,
        };
        let span = base.saturating_mul(1 << doubled.min(16)).min(LONGEST_DELAY);
        let delay = match failure.wait {
            // Not all at the same moment.
            Some(told) => {
                let told = told.min(LONGEST_TOLD);
                told + (told / 4).max(LEAST_SPREAD).mul_f64(chance)
            }
            None => span.mul_f64(chance),
        };
        if Instant::now() + delay >= self.until() {
            return Err(self.error(failure.too_late(self.deadline)));
        }
        Ok(delay)
    }

    /// An end that no attempt led to.
    pub(super) fn refused(&self, failure: Failure) -> Error {
        self.error(failure)
    }

    fn error(&self, failure: Failure) -> Error {
        Error::Fetch(Box::new(FetchError {
            kind: failure.kind,
            range: self.range.clone(),
            attempts: self.failed,
            status: failure.status,
            reason: failure.reason,
            hint: failure.hint,
            request_id: failure.request_id,
            uri: self.object.shown(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Chance;
    use super::*;
    use crate::sample::Scheme;

    fn object(uri_scheme: Scheme, authority: &str, key: &str) -> Location {
        Location { scheme: uri_scheme, authority: authority.into(), key: key.into() }
    }

    fn busy() -> Failure {
        Failure { again: Again::Later, ..Failure::transient("busy").because(Cause::Busy) }
    }

    #[test]
    fn delays_double_with_full_jitter_up_to_their_limit() {
        let (object, chance) = (object(Scheme::S3, "bucket", "key"), Chance::seeded(1));
        let deadline = Duration::from_hours(1);
        let config = recipe::Fetch { attempts: 40, deadline, ..recipe::Fetch::default() };
        let mut tries = Tries::new(&config, Urgency::NOW, &object, None);
        let mut delays = Vec::new();
        for number in 0..39_u32 {
            let span = Duration::from_secs(1 << number.min(5)).min(LONGEST_DELAY);
            let delay = tries.failed(busy(), Condition::Busy, chance.share()).unwrap();
            assert!(delay <= span, "{number}: {delay:?}");
            delays.push(delay);
        }
        let late: Duration = delays[5..].iter().sum();
        let mean = late.as_secs_f64() / 34.0;
        assert!((4.0..16.0).contains(&mean), "jitter spreads over the whole span: {mean}");
        let ended = tries.failed(busy(), Condition::Busy, 1.0).unwrap_err();
        let Error::Fetch(error) = ended else { panic!() };
        assert_eq!((error.attempts, error.reason.as_str()), (40, "busy"));
    }

    #[test]
    fn a_store_that_asks_few_for_relief_is_asked_again_after_a_second_at_first() {
        let object = object(Scheme::S3, "bucket", "key");
        let delays = |condition| {
            let mut tries = Tries::new(&recipe::Fetch::default(), Urgency::NOW, &object, None);
            [(); 7].map(|()| tries.failed(busy(), condition, 1.0).unwrap().as_secs())
        };
        assert_eq!(delays(Condition::Fair), [1, 1, 1, 4, 16, 20, 20]);
        // One that is away for a while is borne for about as long.
        assert_eq!(delays(Condition::Busy), [1, 2, 4, 8, 16, 20, 20]);
    }

    #[test]
    fn a_retry_that_may_not_be_soon_waits_as_for_a_busy_store() {
        let object = object(Scheme::S3, "bucket", "key");
        let tries = || Tries::new(&recipe::Fetch::default(), Urgency::NOW, &object, None);
        let reset = Failure::transient("reset");
        let millis = |delay: Result<Duration, Error>| delay.unwrap().as_millis();
        assert_eq!(millis(tries().failed(reset.clone(), Condition::Fair, 1.0)), 50);
        assert_eq!(millis(tries().failed(reset, Condition::Failing, 1.0)), 1000);
        let missing = Failure::permanent(FetchErrorKind::NotFound, "none");
        assert!(tries().failed(missing, Condition::Failing, 1.0).is_err());
    }

    #[test]
    fn the_store_says_how_long_to_wait_up_to_a_minute() {
        let object = object(Scheme::S3, "bucket", "key");
        let mut tries = Tries::new(&recipe::Fetch::default(), Urgency::NOW, &object, None);
        let told = |seconds| Failure { wait: Some(Duration::from_secs(seconds)), ..busy() };
        assert_eq!(
            tries.failed(told(7), Condition::Fair, 0.5).unwrap(),
            Duration::from_millis(7875)
        );
        assert_eq!(tries.failed(told(3600), Condition::Fair, 0.0).unwrap(), Duration::from_mins(1));
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_begins_behind_the_deadline_and_waiting_for_memory_moves_it() {
        let object = object(Scheme::S3, "bucket", "key");
        let deadline = Duration::from_secs(10);
        let config = recipe::Fetch { deadline, ..recipe::Fetch::default() };
        let mut tries = Tries::new(&config, Urgency::NOW, &object, None);
        let begin = Instant::now();
        assert_eq!(tries.until(), begin + deadline);
        tokio::time::advance(Duration::from_secs(9)).await;
        tries.excuse(Duration::from_secs(4));
        assert!(tries.failed(busy(), Condition::Fair, 1.0).is_ok());
        tokio::time::advance(Duration::from_secs(4)).await;
        let ended = tries.failed(busy(), Condition::Fair, 1.0).unwrap_err();
        let Error::Fetch(error) = ended else { panic!() };
        let text = "busy; fetch.deadline of 10s is over after 2 attempts; raise it if the store may \
                    be away longer: s3://bucket/key";
        assert_eq!(error.to_string(), text);
    }
}
