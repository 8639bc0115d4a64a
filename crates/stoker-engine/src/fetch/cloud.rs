//! Credentials of Google's and Microsoft's clouds, as `object_store` finds them.
//!
//! Its providers keep a token until it is about to end, and can't be told that a store no longer
//! takes one: then they are made anew.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::CredentialProvider;

use crate::error::FetchErrorKind;
use crate::metrics::Metrics;

use super::credentials::{Lent, Obtained, Remedy, Renewing};
use super::failure::{Again, Failure};

pub(super) type Provider<C> = Arc<dyn CredentialProvider<Credential = C>>;
type Make<C> = Box<dyn Fn() -> object_store::Result<Provider<C>> + Send + Sync>;

/// A provider asks its service when it must; it is asked itself this often.
const LOOK: Duration = Duration::from_secs(20);

/// Credentials of one provider.
pub(super) struct Cloud<C> {
    make: Make<C>,
    provider: Mutex<Provider<C>>,
    is_stale: AtomicBool,
    renewing: Renewing<Arc<C>>,
    /// What to do where there are none.
    hint: &'static str,
}

impl<C: PartialEq + Send + Sync + 'static> Cloud<C> {
    pub(super) fn new(
        hint: &'static str,
        metrics: Arc<Metrics>,
        make: impl Fn() -> object_store::Result<Provider<C>> + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let provider = make().map_err(|error| no_credentials(&error, hint))?;
        Ok(Self {
            make: Box::new(make),
            provider: Mutex::new(provider),
            is_stale: AtomicBool::new(false),
            renewing: Renewing::new(metrics),
            hint,
        })
    }

    pub(super) async fn get(&self) -> Result<Lent<Arc<C>>, Failure> {
        self.renewing.get(|| self.obtain()).await
    }

    /// The store does not take the credentials of that number, or no longer.
    pub(super) fn refused(&self, number: u64, failure: &Failure) {
        self.is_stale.store(true, Ordering::Relaxed);
        self.renewing.refused(number, failure);
    }

    async fn obtain(&self) -> Result<Obtained<Arc<C>>, Failure> {
        let none = |error: &_| no_credentials(error, self.hint);
        let provider = {
            let mut provider = self.provider.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_stale.swap(false, Ordering::Relaxed) {
                *provider = (self.make)().map_err(|error| none(&error))?;
            }
            Arc::clone(&provider)
        };
        let credential = provider.get_credential().await.map_err(|error| none(&error))?;
        let remedy = Remedy { renews: false, hint: self.hint.to_owned() };
        Ok(Obtained { credential, life: None, look: Some(LOOK), remedy })
    }
}

/// Only the first line of the reason: answers of token services may quote what they were sent.
fn no_credentials(error: &object_store::Error, hint: &str) -> Failure {
    let reason = error.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    let failure =
        Failure::permanent(FetchErrorKind::Unconfigured, format!("no credentials ({reason})"));
    Failure { again: Again::Never, ..failure }.hint(hint)
}

/// Nothing of what is held.
impl<C> fmt::Debug for Cloud<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").finish_non_exhaustive()
    }
}
