//! 1/f noise: what clouds, walls, grass and faces have in common.
//!
//! A field starts as a few random numbers and is doubled until it is large enough, with fresh random
//! numbers added at each size. This costs a third more than one random number per pixel, however
//! many octaves there are.

use super::random::Random;

/// A field of values around 0, rows of `width`.
pub(super) struct Plane {
    pub(super) width: usize,
    pub(super) values: Vec<f32>,
}

/// A field whose octaves weaken by `persistence` from coarse to fine; its standard deviation is
/// about 1.
pub(super) fn field(random: &mut Random, width: usize, height: usize, persistence: f32) -> Plane {
    let sizes: Vec<(usize, usize)> =
        std::iter::successors(Some((width, height)), |&(w, h)| Some((w / 2 + 2, h / 2 + 2)))
            .take(9)
            .collect();
    // A uniform number in ±1 deviates by 0.58.
    let energy: f32 = (0..sizes.len()).map(|octave| persistence.powi(2 * octave as i32)).sum();
    let mut amplitude = 1.7 / energy.sqrt();
    let mut plane: Option<Plane> = None;
    for &(width, height) in sizes.iter().rev() {
        plane = Some(refine(random, plane.as_ref(), width, height, amplitude));
        amplitude *= persistence;
    }
    plane.expect("there are nine sizes")
}

/// The plane at twice the size, with noise of that amplitude added.
fn refine(
    random: &mut Random,
    coarse: Option<&Plane>,
    width: usize,
    height: usize,
    amplitude: f32,
) -> Plane {
    let mut values = vec![0.0; width * height];
    let seed = random.bits() as u32;
    for (y, row) in values.chunks_exact_mut(width).enumerate() {
        let base = (y * width) as u32;
        for (x, value) in row.iter_mut().enumerate() {
            *value = amplitude * white(seed, base.wrapping_add(x as u32));
        }
        if let Some(coarse) = coarse {
            add_doubled(coarse, y, row);
        }
    }
    Plane { width, values }
}

/// Adds row `y` of the coarse plane at twice its size (quadratic B-spline, so no grid shows).
fn add_doubled(coarse: &Plane, y: usize, row: &mut [f32]) {
    let near = if y.is_multiple_of(2) { 0.75 } else { 0.25 };
    let upper = &coarse.values[y / 2 * coarse.width..][..coarse.width];
    let lower = &coarse.values[(y / 2 + 1) * coarse.width..][..coarse.width];
    let mix: Vec<f32> = upper.iter().zip(lower).map(|(a, b)| a * near + b * (1.0 - near)).collect();
    for (pair, ends) in row.chunks_mut(2).zip(mix.windows(2)) {
        pair[0] += 0.75 * ends[0] + 0.25 * ends[1];
        if let Some(second) = pair.get_mut(1) {
            *second += 0.25 * ends[0] + 0.75 * ends[1];
        }
    }
}

/// A number in -1..1 that depends on nothing but its arguments.
pub(super) fn white(seed: u32, index: u32) -> f32 {
    let mut z = index.wrapping_mul(0x9E37_79B9) ^ seed;
    z = (z ^ (z >> 16)).wrapping_mul(0x85EB_CA6B);
    z = (z ^ (z >> 13)).wrapping_mul(0xC2B2_AE35);
    (z ^ (z >> 16)) as i32 as f32 * (1.0 / 2_147_483_648.0)
}
