//! From shapes to bytes: paint, lens, light and sensor of made-up photographs.

use super::leaf::{Leaf, cover, warp};
use super::noise;
use super::random::Random;

/// How much smaller the background is painted: what makes it look out of focus.
pub(super) const BLUR: usize = 8;

/// RGB from 0 (black) to 1 (white), rows of `3 * width`.
pub(super) struct Picture {
    width: usize,
    height: usize,
    values: Vec<f32>,
}

impl Picture {
    /// The leaves on a background (or, without one, on the first leaf's colour).
    pub(super) fn paint(
        random: &mut Random,
        leaves: &[Leaf],
        width: usize,
        height: usize,
        background: Option<&Self>,
    ) -> Self {
        let noise = noise::field(random, width, height, 1.0);
        let cover = cover(leaves, width, height);
        let cover = warp(&cover, random, width, height);
        let mut values = vec![0.0; width * height * 3];
        let step = 1.0 / width.max(height) as f32;
        for (y, row) in values.chunks_exact_mut(width * 3).enumerate() {
            if let Some(background) = background {
                background.enlarged_row(y, row);
            }
            let bumps = &noise.values[y * width..][..width];
            let mut start = 0;
            for run in cover[y * width..][..width].chunk_by(u8::eq) {
                let end = start + run.len();
                if run[0] > 0 || background.is_none() {
                    let leaf = &leaves[(run[0] as usize).saturating_sub(1)];
                    let from = (start as f32 * step, y as f32 * step);
                    leaf.shade(from, step, &bumps[start..end], &mut row[start * 3..end * 3]);
                }
                start = end;
            }
        }
        Self { width, height, values }
    }

    /// Uneven light of uneven warmth, around 1.
    pub(super) fn light(random: &mut Random, width: usize, height: usize) -> Self {
        let strength = noise::field(random, width, height, 0.6);
        let warmth = noise::field(random, width, height, 0.6);
        let values = strength.values.iter().zip(&warmth.values).flat_map(|(strength, warmth)| {
            [0.06, 0.0, -0.06].map(|warm| 1.0 + 0.12 * strength + warm * warmth)
        });
        Self { width, height, values: values.collect() }
    }

    /// Lets that share of each pixel go over to each neighbour.
    pub(super) fn soften(&mut self, share: f32) {
        let length = self.width * 3;
        let mut above = self.values[..length].to_vec();
        let mut soft = vec![0.0; length];
        for y in 0..self.height {
            let (rows, below) = self.values.split_at_mut((y + 1) * length);
            let row = &mut rows[y * length..];
            let below = below.get(..length).unwrap_or(&above);
            for (i, soft) in soft.iter_mut().enumerate() {
                *soft = share * (above[i] + below[i]) + (1.0 - 2.0 * share) * row[i];
            }
            above.copy_from_slice(row);
            row.copy_from_slice(&soft);
            for ((out, left), right) in
                row[3..].iter_mut().zip(&soft).zip(soft.get(6..).unwrap_or_default())
            {
                *out = (1.0 - 2.0 * share) * *out + share * (left + right);
            }
        }
    }

    /// Row `y` of the picture enlarged `BLUR` times.
    pub(super) fn enlarged_row(&self, y: usize, row: &mut [f32]) {
        let blend = (y % BLUR) as f32 / BLUR as f32;
        let upper = &self.values[y / BLUR * self.width * 3..][..self.width * 3];
        let lower = &self.values[(y / BLUR + 1) * self.width * 3..][..self.width * 3];
        let mixed: Vec<f32> = upper.iter().zip(lower).map(|(a, b)| a + (b - a) * blend).collect();
        for (block, ends) in row.chunks_mut(3 * BLUR).zip(mixed.windows(6).step_by(3)) {
            for (x, pixel) in block.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                let blend = x as f32 / BLUR as f32;
                for (channel, value) in pixel.iter_mut().enumerate() {
                    *value = ends[channel] + (ends[channel + 3] - ends[channel]) * blend;
                }
            }
        }
    }

    /// What a sensor makes of it under that light.
    pub(super) fn expose(&self, random: &mut Random, light: &Self) -> Vec<u8> {
        let length = self.width * 3;
        let mut bytes = vec![0; self.height * length];
        let mut lit = vec![0.0; length];
        let (seed, noise) = (random.bits() as u32, random.between(6.0, 11.0));
        let rows = bytes.chunks_exact_mut(length).zip(self.values.chunks_exact(length));
        for (y, (out, row)) in rows.enumerate() {
            light.enlarged_row(y, &mut lit);
            let base = (y * length) as u32;
            for (i, ((byte, value), lit)) in out.iter_mut().zip(row).zip(&lit).enumerate() {
                let grain = noise * noise::white(seed, base.wrapping_add(i as u32));
                *byte = (255.0 * value * lit + grain + 0.5) as u8;
            }
        }
        bytes
    }
}
