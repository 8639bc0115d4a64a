//! What the packer knows of a sample: its size, and what it costs the device.
//!
//! Ranks wait for the slowest of them, so batches are to cost the same, not to have as many tokens:
//! an image passes through a tower of its own before its tokens do through the language model, and
//! attention grows with the square of a segment. The cost counts floating point operations of one
//! forward pass; the backward pass is twice that in all parts alike, and changes nothing.
//!
//! The numbers are those of Qwen3-VL-4B (`config.json` of Qwen/Qwen3-VL-4B-Instruct). Smaller
//! siblings spend a larger share on images and larger ones a smaller; for the 2B and the 8B these
//! numbers balance the ranks to within two hundredths of what their own would (`docs/rooms/pack.md`).

use crate::sample::{Grid, Measured};

/// What the packer knows of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleSize {
    /// Tokens, image tokens included.
    pub tokens: u64,
    /// Images.
    pub images: u64,
    /// Rows of `pixel_values`.
    pub patches: u64,
    /// What a forward pass over it takes, in thousands of floating point operations.
    pub cost: u64,
}

impl SampleSize {
    /// The size of a sample of so many tokens with images of these grids.
    pub fn new(tokens: usize, grids: impl IntoIterator<Item = Grid>) -> Self {
        let tokens = tokens as u64;
        let mut size = Self { tokens, cost: text_cost(tokens), ..Self::default() };
        for grid in grids {
            let patches = grid.patches() as u64;
            size.images += 1;
            size.patches += patches;
            size.cost = size.cost.saturating_add(image_cost(patches));
        }
        size
    }

    /// The size of a measured sample.
    pub fn of(sample: &Measured) -> Self {
        let grids = sample.images.iter().map(|image| image.plan.grid);
        Self::new(sample.text.tokens.len(), grids)
    }
}

/// The language model: layers, width, width of the queries and of keys with values, width of the
/// multilayer perceptron (three matrices), words.
const LAYERS: u64 = 36;
const WIDTH: u64 = 2560;
const QUERIES: u64 = 32 * 128;
const KEYS_AND_VALUES: u64 = 2 * 8 * 128;
const PERCEPTRON: u64 = 9728;
const WORDS: u64 = 151_936;

/// The vision tower: layers, width, width of the perceptron (two matrices), elements of a patch,
/// and the mergers of 2 × 2 patches (one at the end, three on the way).
const TOWER_LAYERS: u64 = 24;
const TOWER_WIDTH: u64 = 1024;
const TOWER_PERCEPTRON: u64 = 4096;
const PATCH: u64 = 3 * 2 * 16 * 16;
const MERGERS: u64 = 4;
const MERGED: u64 = 4;

/// Operations for each token: two for each weight.
const TOKEN: u64 =
    2 * (LAYERS * WIDTH * (2 * QUERIES + KEYS_AND_VALUES + 3 * PERCEPTRON) + WORDS * WIDTH);
/// Operations for each square of a segment's length: scores and values, of which a causal mask
/// needs half.
const TOKEN_SQUARED: u64 = 2 * LAYERS * QUERIES;
/// Operations for each patch.
const PATCH_ONCE: u64 = 2
    * (TOWER_LAYERS * TOWER_WIDTH * (4 * TOWER_WIDTH + 2 * TOWER_PERCEPTRON)
        + PATCH * TOWER_WIDTH
        + MERGERS * TOWER_WIDTH * (MERGED * TOWER_WIDTH + WIDTH));
/// Operations for each square of an image's patches: each sees all others.
const PATCH_SQUARED: u64 = 4 * TOWER_LAYERS * TOWER_WIDTH;

const THOUSAND: u64 = 1000;

fn text_cost(tokens: u64) -> u64 {
    polynomial(tokens, TOKEN / THOUSAND, TOKEN_SQUARED / THOUSAND)
}

fn image_cost(patches: u64) -> u64 {
    polynomial(patches, PATCH_ONCE / THOUSAND, PATCH_SQUARED / THOUSAND)
}

fn polynomial(count: u64, linear: u64, quadratic: u64) -> u64 {
    let squared = count.saturating_mul(count).saturating_mul(quadratic);
    count.saturating_mul(linear).saturating_add(squared)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model card of Qwen3-4B, its language model: 4.0 billion weights, 3.6 without the words.
    #[test]
    fn the_numbers_are_those_of_the_model() {
        assert_eq!(TOKEN / 2 / 1_000_000, 4022);
        assert_eq!((TOKEN / 2 - WORDS * WIDTH) / 1_000_000, 3633);
        assert_eq!(
            (PATCH_ONCE / 2 / 1_000_000, TOKEN_SQUARED, PATCH_SQUARED),
            (330, 294_912, 98_304)
        );
        let photo = Grid { t: 1, h: 52, w: 78 };
        let with_photo = SampleSize::new(1014, [photo]);
        let text = SampleSize::new(1014, []);
        assert_eq!((with_photo.images, with_photo.patches), (1, 4056));
        let ratio = with_photo.cost as f64 / text.cost as f64;
        assert!((1.4..1.6).contains(&ratio), "{ratio}");
    }

    #[test]
    fn no_sample_is_too_large_to_be_counted() {
        let size = SampleSize::new(1 << 24, [Grid { t: 1, h: 4096, w: 4096 }; 3]);
        assert!(size.cost > 1 << 50 && size.cost < u64::MAX);
        assert_eq!(SampleSize::new(usize::MAX, []).cost, u64::MAX);
    }
}
