//! Whether a body still comes: no byte for too long, or far fewer than usual.
//!
//! Silence is judged by `fetch.read-timeout` alone. A body that drips is judged by the rate that is
//! usual for the store, over [`WINDOW`]; where none is known yet, or where the store is slow as a
//! whole (the caller decides that), dripping is borne.

use tokio::time::{Duration, Instant};

/// Over how long a rate is judged: hundreds of times what an image takes.
pub(super) const WINDOW: Duration = Duration::from_secs(2);
/// Share of the usual rate from which on a body only drips.
const DRIP: f64 = 0.05;

#[derive(Debug)]
pub(super) struct Watch {
    silence: Duration,
    /// Bytes per second; `None` where it is not known.
    usual: Option<f64>,
    last: Instant,
    window: Instant,
    bytes: u64,
}

/// What a look at the clock says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Look {
    Fine,
    /// Nothing came for the whole of the read timeout.
    Silent,
    /// Far less came than usual: so many bytes per second.
    Drips(f64),
}

impl Watch {
    pub(super) fn new(now: Instant, silence: Duration, usual: Option<f64>) -> Self {
        Self { silence, usual, last: now, window: now, bytes: 0 }
    }

    /// Bytes came.
    pub(super) fn got(&mut self, now: Instant, bytes: usize) {
        self.last = now;
        self.bytes += bytes as u64;
    }

    /// When to look again if nothing comes before.
    pub(super) fn next(&self) -> Instant {
        let silent = self.last + self.silence;
        if self.usual.is_some() { silent.min(self.window + WINDOW) } else { silent }
    }

    /// Looks at the clock, and begins a new window if one is over.
    pub(super) fn look(&mut self, now: Instant) -> Look {
        if now >= self.last + self.silence {
            return Look::Silent;
        }
        let Some(usual) = self.usual.filter(|_| now >= self.window + WINDOW) else {
            return Look::Fine;
        };
        let rate = self.bytes as f64 / (now - self.window).as_secs_f64();
        (self.window, self.bytes) = (now, 0);
        if rate < DRIP * usual { Look::Drips(rate) } else { Look::Fine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn silence_and_drips_are_told_apart_from_a_body_that_comes() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin, 5 * SECOND, Some(1e6));
        assert_eq!(watch.next(), begin + WINDOW);
        watch.got(begin + SECOND, 150_000);
        assert_eq!(watch.look(begin + WINDOW), Look::Fine);
        watch.got(begin + 3 * SECOND, 50_000);
        assert_eq!(watch.look(begin + 4 * SECOND), Look::Drips(25_000.0));
        // Borne: it goes on.
        assert_eq!(watch.look(begin + 6 * SECOND), Look::Drips(0.0));
        assert_eq!(watch.next(), begin + 8 * SECOND);
        assert_eq!(watch.look(begin + 8 * SECOND), Look::Silent);
    }

    #[test]
    fn where_no_rate_is_usual_only_silence_counts() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin, 5 * SECOND, None);
        watch.got(begin + 4 * SECOND, 1);
        assert_eq!(watch.look(begin + 8 * SECOND), Look::Fine);
        assert_eq!(watch.next(), begin + 9 * SECOND);
        assert_eq!(watch.look(begin + 9 * SECOND), Look::Silent);
    }
}
