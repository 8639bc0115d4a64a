//! The shapes that made-up photographs are of.

use std::ops::Range;

use super::noise;
use super::random::Random;

/// One opaque shape: an ellipse or a rectangle, in units of the picture's longer side.
pub(super) struct Leaf {
    centre: (f32, f32),
    half: (f32, f32),
    turn: (f32, f32),
    round: bool,
    colour: [f32; 3],
    /// Light falling off across it.
    slope: (f32, f32),
    /// How strongly 1/f noise shows on it, by colour.
    texture: [f32; 3],
    /// Stripes: how strong, and how many across the picture each way.
    stripes: (f32, f32, f32),
}

impl Leaf {
    /// Leaves, the one at the bottom first.
    pub(super) fn scene(
        random: &mut Random,
        count: usize,
        sizes: &Range<f32>,
        detail: f32,
    ) -> Vec<Self> {
        let mut leaves: Vec<Self> = Vec::with_capacity(count);
        for _ in 0..count {
            let kin = leaves.last().filter(|_| random.chance(0.9));
            let leaf = Self::random(random, kin, sizes, detail);
            leaves.push(leaf);
        }
        // Small things lie on large ones more often than under them.
        leaves.sort_by_key(|leaf| (leaf.half.0 < 0.1 * sizes.end, leaf.half.0 < 0.4 * sizes.end));
        leaves
    }

    /// A leaf beside its kin and like it, or one like no other.
    fn random(random: &mut Random, kin: Option<&Self>, sizes: &Range<f32>, detail: f32) -> Self {
        // Sizes fall off as their cube, as those of things in photographs do.
        let chance = random.between(0.0, 1.0);
        let size = (sizes.start.powi(-2) * (1.0 - chance) + sizes.end.powi(-2) * chance).powf(-0.5);
        let size = if kin.is_some() { size } else { random.between(0.3, 1.0) * sizes.end };
        let (luma, warm, green) =
            (random.between(0.08, 0.85), random.normal(0.12), random.normal(0.04));
        let colour = [luma * (1.0 + warm), luma * (1.0 + green), luma * (1.0 - warm - green)];
        let smooth = random.chance(0.3);
        let texture = detail * if smooth { 0.04 } else { random.between(0.1, 0.42) };
        let reach = random.between(0.02, 0.12);
        let place = |kin: f32, random: &mut Random| kin + random.normal(reach);
        let stripes = if random.chance(0.15) { random.between(0.05, 0.4) * detail } else { 0.0 };
        Self {
            centre: match kin {
                Some(kin) => (place(kin.centre.0, random), place(kin.centre.1, random)),
                None => (random.between(0.0, 1.0), random.between(0.0, 1.0)),
            },
            half: (size, size * random.between(0.2, 1.0)),
            turn: (kin.map_or(0.0, Self::angle) + random.normal(0.4)).sin_cos(),
            round: random.chance(0.7),
            colour: match kin {
                Some(kin) => {
                    let shade = (1.0 + random.normal(0.3)).max(0.2);
                    std::array::from_fn(|i| 0.85 * kin.colour[i] * shade + 0.15 * colour[i])
                }
                None => colour,
            },
            slope: (random.normal(0.4), random.normal(0.4)),
            texture: [0.2, 0.0, -0.2].map(|tint| texture * (1.0 + random.normal(0.2) + tint)),
            stripes: (stripes, random.between(20.0, 120.0), random.between(-90.0, 90.0)),
        }
    }

    fn angle(&self) -> f32 {
        self.turn.0.atan2(self.turn.1)
    }

    /// The rows that it may touch.
    pub(super) fn rows(&self, scale: f32, height: usize) -> Range<usize> {
        let reach = self.half.0 + self.half.1;
        let row = |y: f32| ((y * scale).max(0.0) as usize).min(height);
        row(self.centre.1 - reach)..row(self.centre.1 + reach)
    }

    /// Where a row at height `y` enters and leaves it.
    pub(super) fn span(&self, y: f32) -> Option<(f32, f32)> {
        let (sin, cos) = self.turn;
        let dy = y - self.centre.1;
        // In the leaf's own axes, scaled to ±1, the row is the line origin + x * along.
        let origin = (dy * sin / self.half.0, dy * cos / self.half.1);
        let along = (cos / self.half.0, -sin / self.half.1);
        let (from, to) = if self.round {
            let square = dot(along, along);
            let middle = -dot(origin, along) / square;
            let reach = (middle * middle - (dot(origin, origin) - 1.0) / square).sqrt();
            (middle - reach, middle + reach)
        } else {
            let (left, right) = slab(origin.0, along.0);
            let (upper, lower) = slab(origin.1, along.1);
            (left.max(upper), right.min(lower))
        };
        (from < to).then_some((from + self.centre.0, to + self.centre.0))
    }

    /// Writes its colour to a run of pixels that begins at `(x, y)`.
    pub(super) fn shade(&self, (x, y): (f32, f32), step: f32, bumps: &[f32], run: &mut [f32]) {
        let (strength, across, down) = self.stripes;
        let mut light =
            1.0 + (x - self.centre.0) * self.slope.0 + (y - self.centre.1) * self.slope.1;
        let mut wave = 1000.0 + x * across + y * down;
        for (pixel, &bump) in run.as_chunks_mut::<3>().0.iter_mut().zip(bumps) {
            let phase = wave + 0.4 * bump;
            let stripe = (phase - phase as i32 as f32 - 0.5).abs() - 0.25;
            let shade = light + strength * stripe;
            for (channel, value) in pixel.iter_mut().enumerate() {
                *value = self.colour[channel] * (shade + self.texture[channel] * bump);
            }
            light += step * self.slope.0;
            wave += step * across;
        }
    }
}

fn dot(a: (f32, f32), b: (f32, f32)) -> f32 {
    a.0 * b.0 + a.1 * b.1
}

/// Where `origin + x * along` enters and leaves ±1.
fn slab(origin: f32, along: f32) -> (f32, f32) {
    let (one, other) = ((-1.0 - origin) / along, (1.0 - origin) / along);
    (one.min(other), one.max(other))
}

/// Which leaf each pixel shows, the last one on top: its number from 1, or 0 for none.
pub(super) fn cover(leaves: &[Leaf], width: usize, height: usize) -> Vec<u8> {
    let scale = width.max(height) as f32;
    let column = |x: f32| (x * scale).clamp(0.0, width as f32) as usize;
    let mut cover = vec![0; width * height];
    for (name, leaf) in (1..=u8::MAX).zip(leaves) {
        for y in leaf.rows(scale, height) {
            if let Some((from, to)) = leaf.span(y as f32 / scale) {
                cover[y * width..][column(from)..column(to)].fill(name);
            }
        }
    }
    cover
}

/// Moves each pixel a little, so that no border is as straight as geometry has it.
pub(super) fn warp(cover: &[u8], random: &mut Random, width: usize, height: usize) -> Vec<u8> {
    let shift = noise::field(random, width, height, 0.55);
    let reach = random.between(0.001, 0.012) * width.max(height) as f32;
    let moved = |at: usize, by: f32, end: usize| {
        (at as f32 + by * reach).clamp(0.0, (end - 1) as f32) as usize
    };
    let mut warped = Vec::with_capacity(cover.len());
    for y in 0..height {
        let across = &shift.values[y * width..][..width];
        let down = shift.values[(height - 1 - y) * width..][..width].iter().rev();
        warped.extend(across.iter().zip(down).enumerate().map(|(x, (across, down))| {
            cover[moved(y, *down, height) * width + moved(x, *across, width)]
        }));
    }
    warped
}
