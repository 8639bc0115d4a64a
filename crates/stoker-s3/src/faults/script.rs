//! The script that is in force, which may change while the server runs; and the wish that nobody
//! listen for a while, which outlives it.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::injector::Injector;
use super::{Faults, InvalidFaults};

/// What all connections of a server share of its faults.
#[derive(Debug)]
pub(crate) struct Script {
    injector: RwLock<Arc<Injector>>,
    refusal: Mutex<Option<Duration>>,
    refuse: Notify,
    refused: Notify,
}

impl Script {
    pub(crate) fn new(faults: &Faults) -> Result<Self, InvalidFaults> {
        let injector = RwLock::new(Arc::new(Injector::new(faults)?));
        let refusal = Mutex::default();
        Ok(Self { injector, refusal, refuse: Notify::new(), refused: Notify::new() })
    }

    /// Puts other faults in force; counts begin anew.
    pub(crate) fn set(&self, faults: &Faults) -> Result<(), InvalidFaults> {
        let injector = Arc::new(Injector::new(faults)?);
        *self.injector.write().unwrap_or_else(PoisonError::into_inner) = injector;
        Ok(())
    }

    pub(crate) fn injector(&self) -> Arc<Injector> {
        Arc::clone(&self.injector.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has the server stop listening for a while, and waits until it has.
    pub(super) async fn refuse(&self, lasts: Duration) {
        let refused = self.refused.notified();
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(lasts);
        self.refuse.notify_one();
        refused.await;
    }

    /// Says that nobody listens now.
    pub(crate) fn refused(&self) {
        self.refused.notify_waiters();
    }

    /// For how long nobody is to listen from now on, as soon as that is wished.
    pub(crate) async fn refusal(&self) -> Duration {
        loop {
            if let Some(lasts) = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                return lasts;
            }
            self.refuse.notified().await;
        }
    }
}
