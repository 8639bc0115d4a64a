//! Pictures with the statistics of photographs, from a seed.
//!
//! Decoders, resizers and networks are only measured fairly on bytes like those of real photographs,
//! which no licence lets us ship. A picture here is made of opaque shapes of power-law sizes that
//! hide one another (the dead-leaves model, which gives photographs their edges and their 1/f
//! spectrum), in families of like colour, each with its own light and texture (1/f noise, stripes,
//! or next to nothing); behind them the same again out of focus; over all of it uneven light, the
//! softness of a lens and the noise of a sensor. As JPEG of quality 85 to 90 with 4:2:0 chroma it
//! takes about 1.5 to 3 bits per pixel.

use super::leaf::Leaf;
use super::picture::{BLUR, Picture};
use super::random::Random;

/// A picture: `width * height * 3` bytes of RGB.
pub fn photo(seed: u64, width: usize, height: usize) -> Vec<u8> {
    let mut random = Random::new(seed, 0);
    let detail = random.between(0.7, 1.3);
    let (low_width, low_height) = (width / BLUR + 2, height / BLUR + 2);
    let far = Leaf::scene(&mut random, 30, &(0.15..0.9), 0.5 * detail);
    let mut background = Picture::paint(&mut random, &far, low_width, low_height, None);
    background.soften(0.25);
    background.soften(0.25);
    let leaves = 120 + random.below(130);
    let near = Leaf::scene(&mut random, leaves, &(0.008..0.4), detail);
    let mut sharp = Picture::paint(&mut random, &near, width, height, Some(&background));
    sharp.soften(0.12);
    let light = Picture::light(&mut random, low_width, low_height);
    sharp.expose(&mut random, &light)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_can_be_had() {
        for (width, height) in [(1, 1), (1, 9), (8, 8), (17, 3), (33, 64)] {
            assert_eq!(photo(1, width, height).len(), width * height * 3);
        }
    }

    /// Photographs have a power spectrum that falls with about the square of the frequency. So the
    /// difference between neighbours at distance d hardly depends on scale: its mean square grows
    /// by a small factor per octave, where white noise has 1 and a smooth gradient 4.
    #[test]
    fn contrast_grows_with_distance_as_in_photographs() {
        let (width, height) = (512, 384);
        let difference = |distance: usize| -> f64 {
            let mean_square = |seed| {
                let rgb = photo(seed, width, height);
                let green = |x: usize, y: usize| f64::from(rgb[(y * width + x) * 3 + 1]);
                let squares = (0..height).flat_map(|y| (0..width - distance).map(move |x| (x, y)));
                squares.map(|(x, y)| (green(x, y) - green(x + distance, y)).powi(2)).sum::<f64>()
                    / (height * (width - distance)) as f64
            };
            (0..6).map(mean_square).sum()
        };
        for distance in [2, 4, 8, 16, 32] {
            let growth = difference(2 * distance) / difference(distance);
            assert!((1.1..2.2).contains(&growth), "{growth} from {distance}");
        }
    }
}
