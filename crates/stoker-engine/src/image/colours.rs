//! From brightness and colour, stored at half the width, to a row of RGB: libjpeg's own arithmetic.
//!
//! Colour comes back to full width by what libjpeg calls fancy upsampling, a triangle: three parts of the nearest
//! sample and one of the next, across and, where colour is stored at half the height too, downwards. Downwards
//! comes first, as sums of four parts for each sample (`weigh`); across, two pixels are made of each with its two
//! neighbours. Then red, green and blue are brightness and a share of colour, in steps of 2⁻¹⁶.
//!
//! The loops here are the truth, which is libjpeg's C code; the SIMD twins make the same integers, a block of
//! pixels at a time. Without SIMD libjpeg-turbo's own code is used.

#[cfg(target_arch = "x86_64")]
use super::{colours_avx2, colours_avx512};
use crate::simd::Simd;

/// Pixels that a kernel may make at a time: rows of samples have room for whole blocks.
pub(super) const BLOCK: usize = 64;

/// What a row of pixels is made of.
pub(super) struct Row<'a> {
    /// A sample for each pixel.
    pub(super) luma: &'a [u8],
    /// A sample of blue for two pixels, and one of red.
    pub(super) chroma: [Chroma<'a>; 2],
    pub(super) rounding: Rounding,
}

/// The two rows of samples that are nearest to a row of pixels; twice the same where there are as many.
pub(super) struct Chroma<'a> {
    pub(super) near: &'a [u8],
    pub(super) far: &'a [u8],
}

/// What is added to sixteen parts before they are divided, for the left one of two pixels and the right one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounding {
    pub(super) left: i16,
    pub(super) right: i16,
}

impl Rounding {
    /// Of libjpeg's `h2v1_fancy_upsample`: 1 and 2 of four parts.
    pub(super) const ACROSS: Self = Self { left: 4, right: 8 };
    /// Of its `h2v2_fancy_upsample`.
    pub(super) const BOTH_WAYS: Self = Self { left: 8, right: 7 };
}

/// Whether there are kernels for this machine.
pub(super) fn has_kernels(simd: Simd) -> bool {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512(_) | Simd::Avx2(_) => true,
        _ => false,
    }
}

/// Makes pixels of three bytes until `out` is full. `sums` is memory for it, of two values more than
/// there are samples of colour in a row.
pub(super) fn mix(simd: Simd, row: &Row<'_>, sums: &mut [Vec<u16>; 2], out: &mut [u8]) {
    assert!(out.len().is_multiple_of(3), "pixels are whole");
    let (width, samples) = (out.len() / 3, (out.len() / 3).div_ceil(2));
    let blocks = width.next_multiple_of(BLOCK);
    let has_room = |chroma: &Chroma<'_>| chroma.near.len().min(chroma.far.len()) * 2 >= blocks;
    assert!(row.luma.len() >= blocks && row.chroma.iter().all(has_room), "rows are whole blocks");
    assert!(sums.iter().all(|sums| sums.len() * 2 >= blocks + 4), "sums have room for them too");
    for (chroma, sums) in row.chroma.iter().zip(&mut *sums) {
        weigh(simd, chroma, &mut sums[1..=blocks / 2]);
        sums[0] = sums[1];
        sums[samples + 1] = sums[samples];
    }
    let sums = sums.each_ref().map(Vec::as_slice);
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512(proof) => colours_avx512::mix(proof, row, sums, out),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2(proof) => colours_avx2::mix(proof, row, sums, out),
        _ => mix_scalar(row, sums, out),
    }
}

/// Three parts of the nearest row and one of the next.
fn weigh(simd: Simd, chroma: &Chroma<'_>, out: &mut [u16]) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512(proof) => colours_avx512::weigh(proof, chroma, out),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2(proof) => colours_avx2::weigh(proof, chroma, out),
        _ => {
            for ((near, far), out) in chroma.near.iter().zip(chroma.far).zip(out) {
                *out = 3 * u16::from(*near) + u16::from(*far);
            }
        }
    }
}

fn mix_scalar(row: &Row<'_>, sums: [&[u16]; 2], out: &mut [u8]) {
    for (pixel, out) in out.chunks_exact_mut(3).enumerate() {
        let [blue, red] = sums.map(|sums| {
            let [before, own, after] = [0, 1, 2].map(|at| i32::from(sums[pixel / 2 + at]));
            let (next, rounding) = if pixel.is_multiple_of(2) {
                (before, row.rounding.left)
            } else {
                (after, row.rounding.right)
            };
            ((3 * own + next + i32::from(rounding)) >> 4) - 128
        });
        out.copy_from_slice(&rgb(i32::from(row.luma[pixel]), blue, red));
    }
}

/// One pixel; colours are around 0. The factors are libjpeg's, those of BT.601 times 2¹⁶.
fn rgb(luma: i32, blue: i32, red: i32) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let shares = [
        (91_881 * red + HALF) >> 16,
        (-22_554 * blue - 46_802 * red + HALF) >> 16,
        (116_130 * blue + HALF) >> 16,
    ];
    shares.map(|share| (luma + share).clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A row of that many pixels, of these samples of brightness and of colour.
    fn mixed(simd: Simd, width: usize, samples: [&[u8]; 5], rounding: Rounding) -> Vec<u8> {
        let [luma, blue, far_blue, red, far_red] = samples;
        let row = Row {
            luma,
            chroma: [Chroma { near: blue, far: far_blue }, Chroma { near: red, far: far_red }],
            rounding,
        };
        let mut sums = [vec![0; blue.len() + 2], vec![0; red.len() + 2]];
        let mut out = vec![0; width * 3];
        mix(simd, &row, &mut sums, &mut out);
        out
    }

    #[test]
    fn every_colour_is_the_same_with_any_kernel() {
        let luma: Vec<u8> = (0..=255).collect();
        for simd in Simd::all() {
            for (blue, red) in (0..=255_u8).flat_map(|blue| (0..=255_u8).map(move |it| (blue, it)))
            {
                let (blue_row, red_row) = ([blue; 128], [red; 128]);
                let samples = [luma.as_slice(), &blue_row, &blue_row, &red_row, &red_row];
                let found = mixed(simd, 256, samples, Rounding::BOTH_WAYS);
                let [blue, red] = [blue, red].map(|sample| i32::from(sample) - 128);
                let expected = (0..256).flat_map(|luma| rgb(luma, blue, red));
                assert!(found.iter().copied().eq(expected), "{simd:?}, blue {blue}, red {red}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_row_is_the_same_with_any_kernel(
            (width, samples) in (1_usize..300).prop_flat_map(|width| {
                let blocks = width.next_multiple_of(BLOCK);
                let chroma = prop::collection::vec(any::<u8>(), blocks / 2);
                let luma = prop::collection::vec(any::<u8>(), blocks);
                (Just(width), (luma, [chroma.clone(), chroma.clone(), chroma.clone(), chroma]))
            }),
            rounding in prop::sample::select(&[Rounding::ACROSS, Rounding::BOTH_WAYS][..]),
        ) {
            let (luma, [blue, far_blue, red, far_red]) = &samples;
            let samples = [luma.as_slice(), blue, far_blue, red, far_red];
            let truth = mixed(Simd::Scalar, width, samples, rounding);
            for simd in Simd::all() {
                prop_assert!(mixed(simd, width, samples, rounding) == truth, "{simd:?}");
            }
        }
    }
}
