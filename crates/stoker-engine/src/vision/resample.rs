//! The resize, strip by strip downwards.
//!
//! Each strip is one row of merged patches, so that it is still in the L2 cache when the patches are
//! made of it; and where pixels are decoded as they are read, so are the rows that it is made of: an
//! image as large as it likes takes a few dozen rows of memory. Horizontal first (torchvision, and
//! Pillow mostly): rows are resized across into a window that holds what the vertical pass needs next;
//! the rows still needed move to its front when it is full. Vertical first (Pillow, when it shrinks
//! mostly downwards): some rows at a time. A pass whose side does not change is left out, as both
//! references do; an image that keeps its size is not copied at all.

use std::ops::Range;
use std::sync::Arc;

use super::axis::{Axis, AxisKey};
use super::passes::{self, Rows, SLACK, STEP};
use crate::error::Flaw;
use crate::recipe::ResizeKernel;
use crate::sample::{Decoded, PixelRows, Size};
use crate::simd::Simd;

/// Axes kept for the next image of the same size: those of four sizes.
const CACHED_AXES: usize = 8;

/// Rows that are decoded at a time, as a JPEG's blocks are as high. A multiple of [`STEP`], so that no
/// step begins in one lot of rows and ends in the next.
const LOT: usize = 16;
const _: () = assert!(LOT.is_multiple_of(STEP), "a lot is whole steps");

/// Reused memory of the resize.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Axes, the last used first.
    recent: Vec<Arc<Axis>>,
    source: Vec<u8>,
    window: Vec<u8>,
    strip: Vec<u8>,
}

/// One image being resized.
pub(super) struct Resampler<'a> {
    simd: Simd,
    source: Source<'a>,
    to: Size,
    passes: Passes,
    window: Window<'a>,
    strip: &'a mut Vec<u8>,
}

#[derive(Clone, Debug)]
enum Passes {
    None,
    Horizontal(Arc<Axis>),
    Vertical(Arc<Axis>),
    HorizontalFirst { across: Arc<Axis>, down: Arc<Axis> },
    VerticalFirst { across: Arc<Axis>, down: Arc<Axis> },
}

/// Where the pixels come from.
enum Source<'a> {
    Whole(Rows<'a>),
    Read { from: Box<dyn PixelRows + 'a>, height: usize, window: Window<'a> },
}

/// Some neighbouring rows of an image, which moves on downwards.
#[derive(Debug)]
struct Window<'a> {
    bytes: &'a mut Vec<u8>,
    /// Bytes of a row.
    length: usize,
    stride: usize,
    /// Which row of the image its first row is.
    first: usize,
    rows: usize,
}

impl<'a> Resampler<'a> {
    pub(super) fn new(
        image: Decoded<'a>,
        to: Size,
        kernel: ResizeKernel,
        simd: Simd,
        buffers: &'a mut Buffers,
    ) -> Self {
        let from = image.size();
        assert!(from.pixels() > 0, "an image has pixels");
        let Buffers { recent, source, window, strip } = buffers;
        let passes = Passes::of(from, to, kernel, recent);
        let between = match &passes {
            Passes::VerticalFirst { .. } => from.width,
            _ => to.width,
        };
        let window = Window::new(window, between as usize);
        Self { simd, source: Source::new(image, source), to, passes, window, strip }
    }

    /// Rows `first..first + count` of the result. Strips are asked for downwards, without gaps; from the
    /// top if the pixels are read.
    pub(super) fn strip(&mut self, first: usize, count: usize) -> Result<Rows<'_>, Flaw> {
        let width = self.to.width as usize;
        let (simd, stride, source) = (self.simd, stride(width), &mut self.source);
        if let Passes::None = self.passes {
            return source.hold(first..first + count);
        }
        grow(self.strip, stride * count);
        let out = &mut self.strip[..stride * count];
        match &self.passes {
            Passes::None => {}
            Passes::Horizontal(across) => {
                for (step, out) in out.chunks_mut(STEP * stride).enumerate() {
                    let (row, rows) = (first + step * STEP, out.len() / stride);
                    let source = source.hold(row..row + rows)?;
                    passes::horizontal(simd, across, source, rows, out, stride);
                }
            }
            Passes::Vertical(down) => {
                for (row, out) in (first..).zip(out.chunks_exact_mut(stride)) {
                    let source = source.hold(down.span(row))?;
                    passes::vertical(simd, down, row, source, &mut out[..width * 3]);
                }
            }
            Passes::HorizontalFirst { across, down } => {
                for (row, out) in (first..).zip(out.chunks_exact_mut(stride)) {
                    let rows = self.window.hold(simd, across, source, down.span(row))?;
                    passes::vertical(simd, down, row, rows, &mut out[..width * 3]);
                }
            }
            Passes::VerticalFirst { across, down } => {
                for (step, out) in out.chunks_mut(STEP * stride).enumerate() {
                    let (rows, row) = (out.len() / stride, first + step * STEP);
                    let source = self.window.shrink(simd, down, source, row..row + rows)?;
                    passes::horizontal(simd, across, source, rows, out, stride);
                }
            }
        }
        Ok(Rows { bytes: out, stride })
    }
}

impl Passes {
    fn of(from: Size, to: Size, kernel: ResizeKernel, recent: &mut Vec<Arc<Axis>>) -> Self {
        let (from_width, from_height) = (from.width as usize, from.height as usize);
        let (width, height) = (to.width as usize, to.height as usize);
        let mut axis = |from, to| cached(recent, AxisKey { from, to, kernel });
        match (from_width == width, from_height == height) {
            (true, true) => Self::None,
            (false, true) => Self::Horizontal(axis(from_width, width)),
            (true, false) => Self::Vertical(axis(from_height, height)),
            (false, false) => {
                let (across, down) = (axis(from_width, width), axis(from_height, height));
                let saved = |from: usize, to: usize| from as i64 - to as i64;
                let (rows, columns) = (saved(from_height, height), saved(from_width, width));
                // Pillow 13.0 chose this rule (python-pillow/Pillow#9549)
                if kernel == ResizeKernel::Pillow13 && rows > 0 && rows > columns * 2 {
                    Self::VerticalFirst { across, down }
                } else {
                    Self::HorizontalFirst { across, down }
                }
            }
        }
    }
}

impl<'a> Source<'a> {
    fn new(image: Decoded<'a>, buffer: &'a mut Vec<u8>) -> Self {
        let Size { width, height } = image.size();
        let (width, height) = (width as usize, height as usize);
        match image {
            Decoded::Whole(image) => {
                assert_eq!(image.pixels.len(), width * height * 3, "an image is RGB");
                Self::Whole(Rows { bytes: &image.pixels, stride: width * 3 })
            }
            Decoded::Rows(from) => Self::Read { from, height, window: Window::new(buffer, width) },
        }
    }

    /// Rows `span` of the image, and perhaps more behind them. Spans never go back.
    fn hold(&mut self, span: Range<usize>) -> Result<Rows<'_>, Flaw> {
        match self {
            Self::Whole(rows) => Ok(rows.from(span.start)),
            Self::Read { from, height, window } => {
                while window.end() < span.end {
                    let rows = LOT.min(*height - window.end());
                    let stride = window.stride;
                    let out = window.make_room(span.start, rows);
                    from.read(rows, out, stride)?;
                    window.rows += rows;
                }
                Ok(window.from(span.start))
            }
        }
    }

    fn height(&self) -> usize {
        match self {
            Self::Whole(rows) => rows.bytes.len() / rows.stride,
            Self::Read { height, .. } => *height,
        }
    }
}

impl<'a> Window<'a> {
    fn new(bytes: &'a mut Vec<u8>, width: usize) -> Self {
        Self { bytes, length: width * 3, stride: stride(width), first: 0, rows: 0 }
    }

    /// The row after its last.
    fn end(&self) -> usize {
        self.first + self.rows
    }

    /// Its rows from `row` of the image on.
    fn from(&self, row: usize) -> Rows<'_> {
        Rows { bytes: self.bytes, stride: self.stride }.from(row - self.first)
    }

    /// Room for `rows` more; those before `keep` are not needed any more.
    fn make_room(&mut self, keep: usize, rows: usize) -> &mut [u8] {
        /// Rows that the window has room for beyond those that are needed: it moves on once in so
        /// many.
        const SPARE: usize = 2 * LOT;
        let gone = keep.min(self.end()) - self.first;
        let needed = self.rows - gone + rows;
        grow(self.bytes, self.stride * (needed + SPARE));
        if gone > 0 && (gone == self.rows || gone >= SPARE) {
            self.bytes.copy_within(gone * self.stride..self.rows * self.stride, 0);
            (self.first, self.rows) = (self.first + gone, self.rows - gone);
        }
        &mut self.bytes[self.rows * self.stride..]
    }

    /// Makes the window hold rows `span` of the image, resized across, and gives the first of them.
    /// Spans never go back.
    fn hold(
        &mut self,
        simd: Simd,
        across: &Axis,
        source: &mut Source<'_>,
        span: Range<usize>,
    ) -> Result<Rows<'_>, Flaw> {
        if self.rows == 0 {
            self.first = span.start;
        }
        while self.end() < span.end {
            let row = self.end();
            let rows = STEP.min(source.height() - row);
            let source = source.hold(row..row + rows)?;
            let stride = self.stride;
            passes::horizontal(
                simd,
                across,
                source,
                rows,
                self.make_room(span.start, rows),
                stride,
            );
            self.rows += rows;
        }
        Ok(self.from(span.start))
    }

    /// Makes rows `span` of the result, at the width of the source.
    fn shrink(
        &mut self,
        simd: Simd,
        down: &Axis,
        source: &mut Source<'_>,
        span: Range<usize>,
    ) -> Result<Rows<'_>, Flaw> {
        let (stride, length) = (self.stride, self.length);
        grow(self.bytes, stride * span.len());
        for (out, row) in self.bytes.chunks_exact_mut(stride).zip(span) {
            let taps = source.hold(down.span(row))?;
            passes::vertical(simd, down, row, taps, &mut out[..length]);
        }
        Ok(Rows { bytes: self.bytes, stride })
    }
}

/// The axis, made only if it is not one of the last used.
fn cached(recent: &mut Vec<Arc<Axis>>, key: AxisKey) -> Arc<Axis> {
    let axis = match recent.iter().position(|known| known.key == key) {
        Some(place) => recent.remove(place),
        None => Arc::new(Axis::new(key)),
    };
    recent.truncate(CACHED_AXES - 1);
    recent.insert(0, Arc::clone(&axis));
    axis
}

/// Bytes from row to row of a strip: whole cache lines, and an odd number of them, because rows a
/// power of two apart would fight for the same sets of the cache.
fn stride(width: usize) -> usize {
    const LINE: usize = 64;
    ((width * 3 + SLACK).div_ceil(LINE) | 1) * LINE
}

/// Reused memory only grows; what is in it does not matter.
fn grow(bytes: &mut Vec<u8>, len: usize) {
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
}
