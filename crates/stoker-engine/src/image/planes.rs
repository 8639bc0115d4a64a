//! A JPEG whose colour is stored at half the width, from its planes of samples to RGB.
//!
//! Nearly all photographs are stored so. What is decoded is samples of brightness and colour; libjpeg-turbo would
//! bring the colour back to full width and mix RGB in passes one after the other, with rows written and
//! read between them. Here it is one ([`colours`]), with the very arithmetic of libjpeg's `fancy upsampling`: the
//! same bytes.
//!
//! libjpeg gives eight rows of colour at a time, and what belongs to them of brightness. A row of pixels
//! takes the two nearest rows of colour, of which one may be in the next lot; so two lots are kept.

use super::colours::{self, Chroma, Rounding, Row};
use super::jpeg_ffi::{Failure, Lot, Stream};
use crate::sample::Size;
use crate::simd::Simd;

/// Lots that are kept.
const KEPT: usize = 2;

/// Memory, reused from image to image: three mebibytes at most, for the widest.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    luma: Vec<u8>,
    chroma: [Vec<u8>; 2],
    sums: [Vec<u16>; 2],
}

/// An image being decoded.
#[derive(Debug)]
pub(super) struct Planes<'a> {
    stream: Stream<'a>,
    buffers: &'a mut Buffers,
    simd: Simd,
    size: Size,
    /// Rows of brightness for each of colour: 1 or 2.
    down: usize,
    /// Bytes from one row of brightness to the next; of colour it is half of that.
    stride: usize,
    /// What was decoded.
    lots: usize,
    /// What is to come.
    row: usize,
}

impl<'a> Planes<'a> {
    pub(super) fn new(
        stream: Stream<'a>,
        down: usize,
        size: Size,
        simd: Simd,
        buffers: &'a mut Buffers,
    ) -> Self {
        let stride = (size.width as usize).next_multiple_of(colours::BLOCK);
        buffers.luma.resize(KEPT * Lot::ROWS * down * stride, 0);
        buffers.chroma.iter_mut().for_each(|it| it.resize(KEPT * Lot::ROWS * stride / 2, 0));
        buffers.sums.iter_mut().for_each(|it| it.resize(stride / 2 + 2, 0));
        Self { stream, buffers, simd, size, down, stride, lots: 0, row: 0 }
    }

    /// The next rows as RGB, `stride` bytes apart.
    pub(super) fn read(
        &mut self,
        count: usize,
        out: &mut [u8],
        stride: usize,
    ) -> Result<(), Failure> {
        if count == 0 {
            return Ok(());
        }
        let row_bytes = self.size.width as usize * 3;
        let room = (count - 1) * stride + row_bytes;
        assert!(row_bytes <= stride && room <= out.len(), "the buffer has room for the rows");
        let end = self.row + count;
        assert!(end <= self.size.height as usize, "no more is asked for than the image has");
        for out in out.chunks_mut(stride).take(count) {
            let (near, far) = self.chroma_of(self.row);
            while self.lots * Lot::ROWS <= near.max(far) {
                self.next_lot()?;
            }
            self.mix(near, far, &mut out[..row_bytes]);
            self.row += 1;
        }
        Ok(())
    }

    /// Which row of colour is nearest to one of pixels, and which is next to it on that side; the same at an edge.
    fn chroma_of(&self, row: usize) -> (usize, usize) {
        if self.down == 1 {
            return (row, row);
        }
        let (near, last) = (row / 2, (self.size.height as usize).div_ceil(2) - 1);
        let far = if row.is_multiple_of(2) { near.saturating_sub(1) } else { last.min(near + 1) };
        (near, far)
    }

    fn next_lot(&mut self) -> Result<(), Failure> {
        let Self { buffers: Buffers { luma, chroma: [blue, red], .. }, stride, .. } = self;
        let place = |length: usize| {
            let start = self.lots % KEPT * length;
            start..start + length
        };
        let (own, chroma) =
            (place(Lot::ROWS * self.down * *stride), place(Lot::ROWS * *stride / 2));
        self.stream.read_lot(Lot {
            luma: &mut luma[own],
            luma_stride: *stride,
            blue: &mut blue[chroma.clone()],
            red: &mut red[chroma],
            chroma_stride: *stride / 2,
        })?;
        self.lots += 1;
        Ok(())
    }

    fn mix(&mut self, near: usize, far: usize, out: &mut [u8]) {
        let Buffers { luma, chroma, sums } = &mut *self.buffers;
        let rows = KEPT * Lot::ROWS;
        let luma = row_of(luma, self.row % (rows * self.down), self.stride);
        let stride = self.stride / 2;
        let row = Row {
            luma,
            chroma: chroma.each_ref().map(|plane| Chroma {
                near: row_of(plane, near % rows, stride),
                far: row_of(plane, far % rows, stride),
            }),
            rounding: if self.down == 1 { Rounding::ACROSS } else { Rounding::BOTH_WAYS },
        };
        colours::mix(self.simd, &row, sums, out);
    }
}

fn row_of(plane: &[u8], row: usize, stride: usize) -> &[u8] {
    &plane[row * stride..][..stride]
}
