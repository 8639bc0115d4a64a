//! A keyed permutation of `0..n` that is computed, not stored: a Feistel network over the smallest
//! even number of bits that holds `n`, walked along its cycle until it falls below `n` again (on
//! average less than four steps). Six rounds; the round function is the finaliser of SplitMix64
//! (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).

const ROUNDS: usize = 6;

/// A permutation of `0..size`.
pub(super) struct Permutation {
    size: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation with that key.
    pub(super) fn new(size: u64, key: [u64; 4]) -> Self {
        let bits = u64::BITS - size.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(1);
        let base = key.into_iter().fold(0, |state, word| mix(state ^ word));
        let keys = std::array::from_fn(|round| mix(base.wrapping_add(round as u64 + 1)));
        Self { size, half_bits, keys }
    }

    /// Where `index` goes.
    pub(super) fn apply(&self, index: u64) -> u64 {
        debug_assert!(index < self.size, "an index of the permuted range");
        let mut value = self.encrypt(index);
        while value >= self.size {
            value = self.encrypt(value);
        }
        value
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

/// SplitMix64's finaliser, after adding its increment.
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
