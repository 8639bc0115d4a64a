//! Whether a body still comes: no byte for too long, or far fewer than usual or than needed.
//!
//! Silence for `fetch.read-timeout` ends an answer whatever else is known. A body that pauses for much
//! longer than the store's answers take to begin, or that comes at a small part of the rate that is
//! usual for the store for as long, goes on over another connection where there may be another
//! request (the caller decides that: a store that is slow as a whole is borne). And one that comes too
//! slowly to be there by the deadline is given up while there is time for other attempts.

use tokio::time::{Duration, Instant};

use super::flight::Limits;

/// Share of the usual rate from which on a body only drips.
pub(super) const DRIP: f64 = 0.05;

#[derive(Debug)]
pub(super) struct Watch {
    limits: Limits,
    /// Bytes per second; `None` where it is not known.
    usual: Option<f64>,
    last: Instant,
    /// Since when its silence was looked at, if it was.
    paused: Option<Instant>,
    window: Window,
    /// For what can't be there by the deadline.
    long: Window,
}

/// What came since then.
#[derive(Debug)]
struct Window {
    begin: Instant,
    bytes: u64,
}

impl Window {
    /// Bytes a second, if that is over; begins anew then.
    fn rate(&mut self, now: Instant, length: Duration) -> Option<f64> {
        if now < self.begin + length {
            return None;
        }
        let rate = self.bytes as f64 / (now - self.begin).as_secs_f64();
        *self = Self { begin: now, bytes: 0 };
        Some(rate)
    }
}

/// What a look at the clock says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Look {
    Fine,
    /// Nothing came for the whole of the read timeout.
    Silent,
    /// Nothing came for longer than is usual; told once for each pause.
    Pauses(Duration),
    /// Far less came than usual: so many bytes per second.
    Drips(f64),
    /// Less came than would be there by the deadline.
    Hopeless(f64),
}

impl Watch {
    pub(super) fn new(now: Instant, limits: Limits, usual: Option<f64>) -> Self {
        let window = || Window { begin: now, bytes: 0 };
        Self { limits, usual, last: now, paused: None, window: window(), long: window() }
    }

    /// Bytes came.
    pub(super) fn got(&mut self, now: Instant, bytes: usize) {
        (self.last, self.paused) = (now, None);
        self.window.bytes += bytes as u64;
        self.long.bytes += bytes as u64;
    }

    /// How long nothing came.
    pub(super) fn quiet(&self, now: Instant) -> Duration {
        now - self.last
    }

    /// When to look again if nothing comes before; `pause` is how long it may pause, or drip.
    pub(super) fn next(&self, pause: Duration) -> Instant {
        let silent = self.last + self.limits.silence;
        let pauses = if self.paused.is_none() { self.last + pause } else { silent };
        let drips = if self.usual.is_some() { self.window.begin + pause } else { silent };
        silent.min(pauses).min(drips).min(self.long.begin + self.limits.patience)
    }

    /// Looks at the clock, and begins a new window if one is over. `left` is what is still to come.
    pub(super) fn look(&mut self, now: Instant, pause: Duration, left: Option<u64>) -> Look {
        if now >= self.last + self.limits.silence {
            return Look::Silent;
        }
        if let (Some(rate), Some(left)) = (self.long.rate(now, self.limits.patience), left)
            && rate * (self.limits.until - now).as_secs_f64() < left as f64
        {
            return Look::Hopeless(rate);
        }
        if self.paused.is_none() && now >= self.last + pause {
            self.paused = Some(now);
            return Look::Pauses(pause);
        }
        let rate = self.window.rate(now, pause);
        match (rate, self.usual) {
            (Some(rate), Some(usual)) if rate < DRIP * usual => Look::Drips(rate),
            _ => Look::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn watch(begin: Instant, usual: Option<f64>) -> Watch {
        let (silence, until, patience) = (5 * SECOND, begin + 300 * SECOND, 19 * SECOND);
        let limits = Limits { silence, until, patience, is_early: true };
        Watch::new(begin, limits, usual)
    }

    #[test]
    fn silence_pauses_and_drips_are_told_apart_from_a_body_that_comes() {
        let (begin, pause) = (Instant::now(), 2 * SECOND);
        let mut watch = watch(begin, Some(1e6));
        assert_eq!(watch.next(pause), begin + pause);
        watch.got(begin + SECOND, 150_000);
        assert_eq!(watch.look(begin + 2 * SECOND, pause, None), Look::Fine);
        watch.got(begin + 3 * SECOND, 50_000);
        assert_eq!(watch.look(begin + 4 * SECOND, pause, None), Look::Drips(25_000.0));
        // Borne: it goes on, until it pauses, which is told once.
        assert_eq!(watch.next(pause), begin + 5 * SECOND);
        assert_eq!(watch.look(begin + 6 * SECOND, pause, None), Look::Pauses(pause));
        assert_eq!(watch.look(begin + 6 * SECOND, pause, None), Look::Drips(0.0));
        assert_eq!(watch.next(pause), begin + 8 * SECOND);
        assert_eq!(watch.look(begin + 8 * SECOND, pause, None), Look::Silent);
    }

    #[test]
    fn where_no_rate_is_usual_only_silence_counts() {
        let (begin, pause) = (Instant::now(), 10 * SECOND);
        let mut watch = watch(begin, None);
        watch.got(begin + 4 * SECOND, 1);
        assert_eq!(watch.look(begin + 8 * SECOND, pause, None), Look::Fine);
        assert_eq!(watch.next(pause), begin + 9 * SECOND);
        assert_eq!(watch.look(begin + 9 * SECOND, pause, None), Look::Silent);
    }

    #[test]
    fn what_can_not_be_there_by_the_deadline_is_not_waited_for() {
        let (begin, pause) = (Instant::now(), 3 * SECOND);
        for (rate, left, expected) in [
            (10, Some(2811), Look::Hopeless(10.0)),
            (10, Some(2809), Look::Fine),
            (10, None, Look::Fine),
        ] {
            let mut watch = watch(begin, None);
            (1..=19).for_each(|second| watch.got(begin + second * SECOND, rate));
            let now = begin + 19 * SECOND;
            assert_eq!(watch.next(pause), now);
            assert_eq!(watch.look(now, pause, left), expected);
            assert_eq!(watch.look(now, pause, left), Look::Fine, "a new window");
        }
    }
}
