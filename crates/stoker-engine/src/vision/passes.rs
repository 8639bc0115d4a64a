//! The two passes of the resize, a few rows at a time.
//!
//! The scalar code here is the truth; the SIMD twins give the same bytes and are chosen at run time.
//! Both take rows of interleaved RGB at a constant stride, so that they work on an image, on a
//! window of it or on a strip alike, and neither reads outside the slices that it is given.

use super::axis::Axis;
use crate::simd::Simd;

/// Rows of interleaved RGB, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) stride: usize,
}

impl<'a> Rows<'a> {
    /// The rows from `first` on.
    pub(super) fn from(self, first: usize) -> Self {
        Self { bytes: &self.bytes[first * self.stride..], stride: self.stride }
    }

    /// `len` bytes of a row.
    pub(super) fn row(self, row: usize, len: usize) -> &'a [u8] {
        &self.bytes[row * self.stride..][..len]
    }
}

/// Rows that one horizontal step takes at most: SIMD shares the weights between them.
pub(super) const STEP: usize = 8;

/// Bytes past a row that a horizontal step may write.
pub(super) const SLACK: usize = 63;

/// Resizes the first `rows` (at most [`STEP`]) rows of `source` across, to the start of `out`.
/// Each row of `out` has room for [`SLACK`] bytes more, which are left undefined.
pub(super) fn horizontal(
    simd: Simd,
    axis: &Axis,
    source: Rows<'_>,
    rows: usize,
    out: &mut [u8],
    out_stride: usize,
) {
    let length = axis.key.to * 3;
    assert!((1..=STEP).contains(&rows), "a horizontal step takes 1 to 8 rows");
    assert!(out_stride >= length + SLACK, "the rows of the strip have slack");
    #[cfg(target_arch = "x86_64")]
    if let Some(proof) = simd.avx512()
        && super::passes_avx512::horizontal(proof, axis, source, rows, out, out_stride)
    {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    let done = simd.avx2().map_or(0, |proof| {
        super::passes_avx2::horizontal(proof, axis, source, rows, out, out_stride)
    });
    #[cfg(target_arch = "aarch64")]
    let done = simd.neon().map_or(0, |proof| {
        super::passes_neon::horizontal(proof, axis, source, rows, out, out_stride)
    });
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let (Simd::Scalar, done) = (simd, 0);
    for (row, out) in out.chunks_mut(out_stride).take(rows).enumerate() {
        let source = source.row(row, axis.key.from * 3);
        for pixel in done..axis.key.to {
            let span = axis.span(pixel);
            let taps = source[span.start * 3..span.end * 3].as_chunks::<3>().0;
            let mut sums = [half(axis); 3];
            for (rgb, weight) in taps.iter().zip(axis.weights(pixel)) {
                for (sum, value) in sums.iter_mut().zip(rgb) {
                    *sum += i32::from(*value) * weight;
                }
            }
            for (byte, sum) in out[pixel * 3..][..3].iter_mut().zip(sums) {
                *byte = finish(sum, axis);
            }
        }
    }
}

/// Resizes downwards: makes row `to` of the result from `source`, whose first row is the first one
/// that `to` is made of.
pub(super) fn vertical(simd: Simd, axis: &Axis, to: usize, source: Rows<'_>, out: &mut [u8]) {
    const LANES: usize = 64;
    #[cfg(target_arch = "x86_64")]
    if let Some(proof) = simd.avx512()
        && super::passes_avx512::vertical(proof, axis, to, source, out)
    {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(proof) = simd.avx2()
        && super::passes_avx2::vertical(proof, axis, to, source, out)
    {
        return;
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(proof) = simd.neon()
        && super::passes_neon::vertical(proof, axis, to, source, out)
    {
        return;
    }
    let _ = simd;
    let length = out.len();
    for (index, out) in out.chunks_mut(LANES).enumerate() {
        let mut sums = [half(axis); LANES];
        for (row, weight) in axis.weights(to).iter().enumerate() {
            let values = &source.row(row, length)[index * LANES..];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += i32::from(*value) * weight;
            }
        }
        for (byte, sum) in out.iter_mut().zip(sums) {
            *byte = finish(sum, axis);
        }
    }
}

/// One half in the fixed point of the sums.
fn half(axis: &Axis) -> i32 {
    1 << (axis.precision - 1)
}

fn finish(sum: i32, axis: &Axis) -> u8 {
    (sum >> axis.precision).clamp(0, 255) as u8
}
