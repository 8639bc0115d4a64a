//! An opening that may be given up from another thread: whoever waits for it may be told to stop
//! waiting, and what asks a store that does not answer must not stay behind for minutes.

use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::fetch::Fetcher;

/// What is known of it to others.
#[derive(Debug, Default)]
pub struct Opening(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unfetched,
    /// Its requests go through this.
    Fetching(Fetcher),
    GivenUp,
}

impl Opening {
    /// Ends its requests: it fails with [`Error::Stopped`], unless it is past them. Then what it
    /// opened can't fetch.
    pub fn give_up(&self) {
        if let State::Fetching(fetcher) = self.change(State::GivenUp) {
            fetcher.close();
        }
    }

    /// From now on it fetches, unless it was given up.
    pub(super) fn fetches(&self, fetcher: &Fetcher) -> Result<()> {
        match self.change(State::Fetching(fetcher.clone())) {
            State::GivenUp => {
                self.give_up();
                Err(Error::Stopped)
            }
            _ => Ok(()),
        }
    }

    fn change(&self, to: State) -> State {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe;

    #[test]
    fn one_that_was_given_up_does_not_fetch_whenever_that_was() {
        let fetcher =
            || Fetcher::new(&recipe::Fetch::default(), std::sync::Arc::default()).unwrap();
        let object = crate::sample::Location::parse("/no/such/file").unwrap();
        let stopped = |fetcher: &Fetcher| fetcher.stat_blocking(&object) == Err(Error::Stopped);
        let (early, late) = (Opening::default(), Opening::default());
        let [first, second] = [fetcher(), fetcher()];
        early.give_up();
        assert_eq!(early.fetches(&first), Err(Error::Stopped));
        assert!(stopped(&first));
        late.fetches(&second).unwrap();
        assert!(!stopped(&second));
        late.give_up();
        assert!(stopped(&second));
    }
}
