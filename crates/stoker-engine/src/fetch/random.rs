//! Chance for one room: a seeded stream of numbers (splitmix64), so that a test can repeat what
//! happened. In life its seed is the standard library's, which is new for each.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Chance(AtomicU64);

impl Default for Chance {
    fn default() -> Self {
        Self::seeded(RandomState::new().hash_one(0))
    }
}

impl Chance {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// From 0 to 1.
    pub(super) fn share(&self) -> f64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }
}
