//! One attempt that failed: what it means, whether another may help, and what to tell the operator.
//!
//! [`Tries`] counts the attempts of one read and chooses the delays between them: full jitter over
//! a doubling span, from 50 ms for failures of the way and 1 s where the store asks for relief.

use std::error::Error as _;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};

use crate::error::{Error, FetchError, FetchErrorKind};
use crate::recipe;
use crate::sample::{Location, Scheme};

use super::Urgency;
use super::address::NotPublic;

/// Longest delay before another attempt.
const LONGEST_DELAY: Duration = Duration::from_secs(20);

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FetchErrorKind,
    pub(super) again: Again,
    pub(super) status: Option<u16>,
    pub(super) reason: String,
    pub(super) hint: Option<String>,
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
        Self { kind, again: Again::Never, status: None, reason: reason.into(), hint: None }
    }

    /// One that another attempt may mend.
    pub(super) fn transient(reason: impl Into<String>) -> Self {
        let kind = FetchErrorKind::Transient;
        Self { kind, again: Again::Soon, status: None, reason: reason.into(), hint: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// No answer, or one that broke off.
    pub(super) fn of_way(error: &HttpError) -> Self {
        let mut reasons = Vec::new();
        let mut source = error.source();
        while let Some(error) = source {
            if let Some(refused) = error.downcast_ref::<NotPublic>() {
                return Self::permanent(FetchErrorKind::Forbidden, refused.to_string())
                    .hint(NotPublic::HINT);
            }
            let reason = error.to_string();
            // Layers repeat each other.
            if reasons.last() != Some(&reason) {
                reasons.push(reason);
            }
            source = error.source();
        }
        let what = match error.kind() {
            HttpErrorKind::Connect => "can't connect",
            HttpErrorKind::Timeout => "timed out",
            _ => "the connection failed",
        };
        let failure = Self::transient(format!("{what} ({})", reasons.join(": ")));
        match error.kind() {
            HttpErrorKind::Connect => failure.hint("check the endpoint and the network"),
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
            _ => Self::transient(error.to_string()),
        }
    }
}

/// The attempts of one read.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    urgency: Urgency,
    object: &'a Location,
    range: Option<Range<u64>>,
    limit: u32,
    failed: u32,
}

impl<'a> Tries<'a> {
    pub(super) fn new(
        config: &recipe::Fetch,
        urgency: Urgency,
        object: &'a Location,
        range: Option<Range<u64>>,
    ) -> Self {
        Self { urgency, object, range, limit: config.attempts, failed: 0 }
    }

    /// How soon the read is needed, a first attempt and a late one alike.
    pub(super) fn urgency(&self) -> Urgency {
        self.urgency
    }

    /// Counts a failed attempt: how long to wait before the next, or the end.
    pub(super) fn failed(&mut self, failure: Failure) -> Result<Duration, Error> {
        self.failed += 1;
        match failure.again.base() {
            Some(base) if self.failed < self.limit => {
                let span = base.saturating_mul(1 << (self.failed - 1).min(16)).min(LONGEST_DELAY);
                Ok(span.mul_f64(random_share()))
            }
            _ => Err(self.error(failure)),
        }
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
            uri: shown(self.object),
        }))
    }
}

/// An object's address as it may be shown: the query of a web address is often a signature, and its
/// authority may hold a password.
pub(super) fn shown(object: &Location) -> String {
    if !matches!(object.scheme, Scheme::Http | Scheme::Https) {
        return object.to_string();
    }
    let host = object.authority.rsplit('@').next().unwrap_or_default();
    let path = object.key.split(['?', '#']).next().unwrap_or_default();
    let query = if path.len() < object.key.len() { "?…" } else { "" };
    format!("{}://{host}/{path}{query}", object.scheme.as_str())
}

/// From 0 to 1; the standard library seeds each `RandomState` anew.
fn random_share() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uri_scheme: Scheme, authority: &str, key: &str) -> Location {
        Location { scheme: uri_scheme, authority: authority.into(), key: key.into() }
    }

    #[test]
    fn delays_double_with_full_jitter_up_to_their_limit() {
        let object = object(Scheme::S3, "bucket", "key");
        let config = recipe::Fetch { attempts: 40, ..recipe::Fetch::default() };
        let mut tries = Tries::new(&config, Urgency::NOW, &object, None);
        let slow = Failure { again: Again::Later, ..Failure::transient("busy") };
        let mut delays = Vec::new();
        for number in 0..39_u32 {
            let span = Duration::from_secs(1 << number.min(5)).min(LONGEST_DELAY);
            let delay = tries.failed(slow.clone()).unwrap();
            assert!(delay <= span, "{number}: {delay:?}");
            delays.push(delay);
        }
        let late: Duration = delays[5..].iter().sum();
        let mean = late.as_secs_f64() / 34.0;
        assert!((4.0..16.0).contains(&mean), "jitter spreads over the whole span: {mean}");
        let Error::Fetch(error) = tries.failed(slow).unwrap_err() else { panic!() };
        assert_eq!((error.attempts, error.reason.as_str()), (40, "busy"));
    }

    #[test]
    fn shown_addresses_hold_no_signature_and_no_password() {
        let signed = object(Scheme::Https, "me:pass@host:1", "a/b.jpg?X-Amz-Signature=abc");
        assert_eq!(shown(&signed), "https://host:1/a/b.jpg?…");
        let plain = object(Scheme::S3, "bucket", "what?.jpg");
        assert_eq!(shown(&plain), "s3://bucket/what?.jpg");
    }
}
