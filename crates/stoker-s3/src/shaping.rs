//! Decides what each request meets, and keeps count of requests.
//!
//! [`Shaping::decide`] is the one place where a request's fate is settled, before any byte is
//! looked up: today its latency and its rate. [`Line`] is the network card that all responses
//! share, where the server is given one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use crate::profile::Profile;
use crate::server::Config;

/// What one request meets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// How long the answer is held back.
    pub(crate) first_byte: Duration,
    /// Bytes per second of the body.
    pub(crate) rate: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct Shaping {
    profile: Mutex<Profile>,
    seed: u64,
    first_byte: Option<Duration>,
    rate: Option<f64>,
    /// How often each target was asked for, by its hash.
    asked: Mutex<HashMap<u64, u64>>,
}

impl Shaping {
    pub(crate) fn new(config: &Config) -> Self {
        let Config { profile, seed, first_byte, rate, .. } = *config;
        let (rate, asked) = (rate.map(|rate| rate as f64), Mutex::default());
        let profile = Mutex::new(profile);
        Self { profile, seed, first_byte, rate, asked }
    }

    pub(crate) fn set_profile(&self, profile: Profile) {
        *self.profile.lock().unwrap_or_else(PoisonError::into_inner) = profile;
    }

    /// `target` names what is asked for: the object and its range, so that the parts of one object
    /// may arrive in any order.
    pub(crate) fn decide(&self, target: &str) -> Behaviour {
        let profile = *self.profile.lock().unwrap_or_else(PoisonError::into_inner);
        if profile == Profile::None {
            let first_byte = self.first_byte.unwrap_or_default();
            return Behaviour { first_byte, rate: self.rate };
        }
        let number = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let times = asked.entry(xxh3_64(target.as_bytes())).or_default();
            *times += 1;
            *times - 1
        };
        let draw = profile.draw(self.seed, target, number);
        let first_byte = self.first_byte.unwrap_or(draw.first_byte);
        Behaviour { first_byte, rate: self.rate.or(draw.rate) }
    }
}

/// A line with a bandwidth that all responses share, first come first served.
#[derive(Debug)]
pub(crate) struct Line {
    bytes_per_second: f64,
    free_at: Mutex<Instant>,
}

impl Line {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        let free_at = Mutex::new(Instant::now());
        Self { bytes_per_second: bytes_per_second as f64, free_at }
    }

    /// When the last of `bytes` more bytes will be through, if they are ready at `ready`.
    pub(crate) fn reserve(&self, bytes: usize, ready: Instant) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let through = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        *free_at = ready.max(*free_at) + through;
        *free_at
    }
}

/// What a request asks for, as [`Shaping::decide`] wants it.
pub(crate) fn target(bucket: &str, key: &str, range: Option<&Range<u64>>) -> String {
    range.map_or_else(
        || format!("{bucket}/{key}"),
        |range| format!("{bucket}/{key}\n{}-{}", range.start, range.end),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_line_serves_one_after_the_other() {
        let line = Line::new(1_000_000);
        let start = Instant::now() + Duration::from_secs(1);
        assert_eq!(line.reserve(500_000, start), start + Duration::from_millis(500));
        assert_eq!(line.reserve(500_000, start), start + Duration::from_secs(1));
        let later = start + Duration::from_secs(5);
        assert_eq!(line.reserve(1_000_000, later), later + Duration::from_secs(1));
    }

    #[test]
    fn the_order_of_other_requests_does_not_change_what_a_request_meets() {
        let config = Config { profile: Profile::Standard, seed: 3, ..Config::default() };
        let shaping = || Shaping::new(&config);
        let (one, other) = (shaping(), shaping());
        let forward = ["a", "b", "a", "c"].map(|target| one.decide(target).first_byte);
        let backward = ["c", "a", "b", "a"].map(|target| other.decide(target).first_byte);
        assert_eq!(forward, [backward[1], backward[2], backward[3], backward[0]]);
        assert_ne!(forward[0], forward[2], "a repeated request draws anew");
    }

    #[test]
    fn a_wait_that_is_given_is_every_answers_whatever_the_profile() {
        let wait = Duration::from_millis(30);
        for profile in Profile::ALL {
            let config = Config { profile, first_byte: Some(wait), ..Config::default() };
            let shaping = Shaping::new(&config);
            for target in ["a", "b", "a"] {
                assert_eq!(shaping.decide(target).first_byte, wait, "{profile}");
            }
        }
    }
}
