//! From coefficients to samples: libjpeg-turbo's accurate inverse DCT, four blocks at a time.
//!
//! What libjpeg calls `islow`, as its SIMD code does it: down the columns first, then along the rows, with factors
//! of 13 bits. Between the two passes samples have two bits more than in the end. Sums that come before a
//! factor, and values between the passes, have 16 bits, which only noise exceeds; what becomes of it is part
//! of the arithmetic too.
//!
//! Four blocks lie side by side, a row of all after the other, so that a register of 512 bits holds a row of
//! each, and one of 256 bits of two. The loops here are the truth; the SIMD twins make the same integers. Without
//! SIMD libjpeg-turbo's own code is used, and on other processors, for which it has kernels.

use super::idct_x86;
use crate::simd::Simd;

/// Rows of a block, and columns.
pub(super) const SIDE: usize = 8;
/// Blocks that lie side by side.
pub(super) const BLOCKS: usize = 4;

/// Coefficients of four blocks, or what they are multiplied by.
#[repr(C, align(64))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Coefficients(pub(super) [[[i16; SIDE]; BLOCKS]; SIDE]);

/// Samples of four blocks: of two rows the first block's, then the second's, and so on.
#[repr(C, align(64))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Samples(pub(super) [[[[u8; SIDE]; 2]; BLOCKS]; SIDE / 2]);

/// Makes samples of coefficients, which are zeros after that. C calls it.
pub(super) type Transform = extern "C" fn(&mut Coefficients, &Coefficients, &mut Samples);

/// The one of these kernels, if there is any.
pub(super) fn transform(simd: Simd) -> Option<Transform> {
    match simd {
        Simd::Avx512(proof) => Some(idct_x86::avx512(proof)),
        Simd::Avx2(proof) => Some(idct_x86::avx2(proof)),
        Simd::Scalar => None,
    }
}

/// The factors, in steps of 2⁻¹³: of two terms that are added up, the one of the first and of the second.
pub(super) mod factors {
    /// Of rows 2 and 6.
    pub(crate) const EVEN: [[i16; 2]; 2] = [[4_433 + 6_270, 4_433], [4_433, 4_433 - 15_137]];
    /// Of the sums of rows 3 and 7, and 1 and 5.
    pub(crate) const ODD: [[i16; 2]; 2] = [[9_633 - 16_069, 9_633], [9_633, 9_633 - 3_196]];
    /// Of rows 7 and 1.
    pub(crate) const OUTER: [[i16; 2]; 2] = [[2_446 - 7_373, -7_373], [-7_373, 12_299 - 7_373]];
    /// Of rows 5 and 3.
    pub(crate) const INNER: [[i16; 2]; 2] =
        [[16_819 - 20_995, -20_995], [-20_995, 25_172 - 20_995]];
    /// Bits of them.
    pub(crate) const BITS: u32 = 13;
    /// Bits that samples have more between the passes.
    pub(crate) const MORE: u32 = 2;
    /// Of a result, those that are rounded away after the first pass.
    pub(crate) const FIRST: u32 = BITS - MORE;
    /// And after the second, of which three are the transform's.
    pub(crate) const SECOND: u32 = BITS + MORE + 3;
    /// Below this, and from as much below zero on, what the first pass makes of a first row alone has 16 bits.
    pub(crate) const TAME: i16 = 1 << (15 - MORE);
}

/// As [`Transform`], without SIMD.
pub(super) fn scalar(coefficients: &mut Coefficients, by: &Coefficients, samples: &mut Samples) {
    for block in 0..BLOCKS {
        let rows = |it: &Coefficients| it.0.map(|row| row[block]);
        let made = of_block(rows(coefficients), rows(by));
        for (row, made) in made.into_iter().enumerate() {
            samples.0[row / 2][block][row % 2] = made;
        }
    }
    coefficients.0 = [[[0; SIDE]; BLOCKS]; SIDE];
}

fn of_block(coefficients: [[i16; SIDE]; SIDE], by: [[i16; SIDE]; SIDE]) -> [[u8; SIDE]; SIDE] {
    let is_flat = coefficients[1..].as_flattened().iter().all(|it| *it == 0);
    let mut between = [[0; SIDE]; SIDE];
    for column in 0..SIDE {
        let values: [i16; SIDE] =
            std::array::from_fn(|row| coefficients[row][column].wrapping_mul(by[row][column]));
        between[column] = if is_flat {
            // libjpeg-turbo does not bother then, and wraps around where it else would not.
            [values[0] << factors::MORE; SIDE]
        } else {
            pass(values, factors::FIRST)
        };
    }
    std::array::from_fn(|row| {
        let values = pass(between.map(|column| column[row]), factors::SECOND);
        values.map(|it| (it.clamp(-128, 127) + 128) as u8)
    })
}

/// Eight values, the last bits rounded away.
fn pass(values: [i16; SIDE], bits: u32) -> [i16; SIDE] {
    let [v0, v1, v2, v3, v4, v5, v6, v7] = values;
    let both = |first: i16, second: i16, by: [[i16; 2]; 2]| {
        by.map(|by| i32::from(first) * i32::from(by[0]) + i32::from(second) * i32::from(by[1]))
    };
    let scaled = |sum: i16| i32::from(sum) << factors::BITS;
    let [two, six] = both(v2, v6, factors::EVEN);
    let (sum, difference) = (scaled(v0.wrapping_add(v4)), scaled(v0.wrapping_sub(v4)));
    let even = [sum + two, difference + six, difference - six, sum - two];
    let [three, one] = both(v3.wrapping_add(v7), v1.wrapping_add(v5), factors::ODD);
    let [outer, far_outer] = both(v7, v1, factors::OUTER);
    let [inner, far_inner] = both(v5, v3, factors::INNER);
    let odd = [far_outer + one, far_inner + three, inner + one, outer + three];
    std::array::from_fn(|at| {
        let mirrored = at.min(SIDE - 1 - at);
        let odd = if at < SIDE / 2 { odd[mirrored] } else { -odd[mirrored] };
        let rounded = (even[mirrored] + odd + (1 << (bits - 1))) >> bits;
        rounded.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
    })
}
