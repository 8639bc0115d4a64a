//! Pixels to patches: the order of `pixel_values` (transformers, `Qwen2VLImageProcessor`).
//!
//! The rows are patches, block by merged block, and within a block from the top left; the columns
//! are channel, temporal copy, y, x. One strip of the image (one row of merged blocks) is one
//! contiguous run of rows, so strips are turned one by one while they are in the cache. The loop
//! here is the truth; the SIMD twins cover patches of 14 and 16 pixels, and of eight and more on NEON.

use super::config::Layout;
use super::passes::Rows;
use super::values::{Formula, Values};
use crate::simd::Simd;

/// How pixels are laid out as patches.
#[derive(Clone, Debug)]
pub(super) struct Patchify {
    /// Side of a patch, in pixels.
    pub(super) patch: usize,
    /// Side of a merged block, in patches.
    pub(super) merge: usize,
    /// How often each frame is written.
    pub(super) copies: usize,
    /// What a byte becomes.
    pub(super) values: Values,
    /// The same as a formula.
    pub(super) formula: Formula,
}

impl Patchify {
    pub(super) fn new(layout: &Layout, values: Values, formula: Formula) -> Self {
        // bytes are written once: the device that normalises them makes the copies too
        let raw = matches!(values, Values::U8(_));
        Self {
            patch: layout.patch_size as usize,
            merge: layout.merge_size as usize,
            copies: if raw { 1 } else { layout.temporal_patch_size as usize },
            values,
            formula,
        }
    }

    /// Values of one patch.
    pub(super) fn columns(&self) -> usize {
        3 * self.copies * self.patch * self.patch
    }

    /// Rows of pixels in one strip.
    pub(super) fn strip_height(&self) -> usize {
        self.patch * self.merge
    }

    /// Bytes of one patch.
    pub(super) fn row_bytes(&self) -> usize {
        self.columns() * self.values.size()
    }

    /// Turns one strip of pixels into patches. `stream` allows stores past the cache, after which
    /// the caller must [`fence`].
    pub(super) fn strip(&self, simd: Simd, strip: Rows<'_>, out: &mut [u8], stream: bool) {
        #[cfg(target_arch = "x86_64")]
        if let Some(proof) = simd.avx512()
            && super::patchify_avx512::strip(proof, self, strip, out, stream)
        {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(proof) = simd.avx2()
            && super::patchify_avx2::strip(proof, self, strip, out, stream)
        {
            return;
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(proof) = simd.neon()
            && super::patchify_neon::strip(proof, self, strip, out)
        {
            return;
        }
        let _ = (simd, stream);
        for (index, patch) in out.chunks_exact_mut(self.row_bytes()).enumerate() {
            let (x, y) = self.corner(index);
            match &self.values {
                Values::F32(table) => self.patch(table, strip, x, y, patch),
                Values::Bf16(table) => self.patch(table, strip, x, y, patch),
                Values::U8(table) => self.patch(table, strip, x, y, patch),
            }
        }
    }

    /// Left and top pixel of a patch of a strip.
    pub(super) fn corner(&self, index: usize) -> (usize, usize) {
        let (block, inner) = (index / (self.merge * self.merge), index % (self.merge * self.merge));
        let column = block * self.merge + inner % self.merge;
        (column * self.patch, inner / self.merge * self.patch)
    }

    fn patch<const BYTES: usize>(
        &self,
        table: &[[[u8; BYTES]; 256]; 3],
        strip: Rows<'_>,
        x: usize,
        y: usize,
        out: &mut [u8],
    ) {
        let frame = self.patch * self.patch * BYTES;
        for (channel, out) in out.chunks_exact_mut(frame * self.copies).enumerate() {
            let (first, copies) = out.split_at_mut(frame);
            for (py, out) in first.chunks_exact_mut(self.patch * BYTES).enumerate() {
                let row = strip.row(y + py, (x + self.patch) * 3);
                let values = row[x * 3..].iter().skip(channel).step_by(3);
                for (out, value) in out.chunks_exact_mut(BYTES).zip(values) {
                    out.copy_from_slice(&table[channel][*value as usize]);
                }
            }
            copies.chunks_exact_mut(frame).for_each(|copy| copy.copy_from_slice(first));
        }
    }
}

/// Makes streaming stores visible to other threads, as normal ones are.
pub(super) fn fence(simd: Simd) {
    #[cfg(target_arch = "x86_64")]
    if let Some(proof) = simd.avx2() {
        super::patchify_avx2::fence(proof);
    }
    let _ = simd;
}
