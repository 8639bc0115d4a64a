//! Sizes of samples as mixtures for training have them: a few kinds that differ by orders of
//! magnitude, in shares that are far from even.

use super::random::Random;
use crate::pack::SampleSize;
use crate::sample::Grid;

/// The endless stream of sample sizes of one mixture.
#[derive(Clone, Debug)]
pub struct SizeMixture {
    random: Random,
    /// Of each kind, the share.
    shares: [f32; KINDS],
    longest: u64,
}

const KINDS: usize = 6;

impl SizeMixture {
    /// The mixture of that number, as stream `stream` draws from it. Samples have at most so many
    /// tokens.
    pub fn new(mixture: u64, stream: u64, longest: u64) -> Self {
        let mut random = Random::new(mixture, 0);
        // Squares of exponentially distributed numbers: mostly one or two kinds prevail.
        let mut shares = [(); KINDS].map(|()| random.between(1e-4, 1.0).ln().powi(2));
        let sum: f32 = shares.iter().sum();
        for share in &mut shares {
            *share /= sum;
        }
        Self { random: Random::new(mixture, stream + 1), shares, longest }
    }

    fn draw(&mut self) -> SampleSize {
        let mut point = self.random.between(0.0, 1.0);
        let kind = self.shares.iter().position(|share| {
            point -= share;
            point < 0.0
        });
        match kind.unwrap_or(0) {
            // Short chats.
            0 => self.sample(250.0, 0.8, 0, 0.0, 0.0),
            // Captions.
            1 => self.sample(80.0, 0.5, 1, 500.0, 0.6),
            // Questions on a page of a document.
            2 => self.sample(250.0, 0.8, 1, 2200.0, 0.5),
            // Several pictures.
            3 => {
                let images = 2 + self.random.below(8);
                self.sample(500.0, 0.6, images, 300.0, 0.4)
            }
            // Long texts.
            4 => self.sample(4000.0, 0.7, 0, 0.0, 0.0),
            // Whole documents.
            _ => {
                let images = 4 + self.random.below(12);
                self.sample(300.0, 0.6, images, 700.0, 0.3)
            }
        }
    }

    /// Text and images whose tokens have these medians and spreads.
    fn sample(
        &mut self,
        text: f32,
        text_spread: f32,
        images: usize,
        image: f32,
        image_spread: f32,
    ) -> SampleSize {
        let sides: Vec<_> =
            (0..images).map(|_| self.about(image, image_spread).sqrt() as u32 * 2).collect();
        let grids = sides.into_iter().map(|side| Grid { t: 1, h: side.max(4), w: side.max(4) });
        let grids: Vec<_> = grids.collect();
        let seen: usize = grids.iter().map(|grid| grid.tokens(2) + 2).sum();
        let tokens = 20 + self.about(text, text_spread) as usize + seen;
        SampleSize::new(tokens, grids)
    }

    fn about(&mut self, median: f32, spread: f32) -> f32 {
        median * self.random.normal(spread).exp()
    }
}

impl Iterator for SizeMixture {
    type Item = SampleSize;

    fn next(&mut self) -> Option<SampleSize> {
        loop {
            let size = self.draw();
            if size.tokens <= self.longest {
                return Some(size);
            }
        }
    }
}
