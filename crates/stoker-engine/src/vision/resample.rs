//! The resize, strip by strip downwards.
//!
//! Each strip is one row of merged patches, so that it is still in the L2 cache when the patches are
//! made of it. Horizontal first (torchvision, and Pillow mostly): rows are resized across into a
//! window that holds what the vertical pass needs next; the rows still needed move to its front when
//! it is full. Vertical first (Pillow, when it shrinks mostly downwards): four rows at a time. A pass
//! whose side does not change is left out, as both references do; an image that keeps its size is
//! not copied at all.

use std::sync::Arc;

use super::axis::{Axis, AxisKey};
use super::passes::{self, Rows, SLACK, STEP};
use super::simd::Simd;
use crate::recipe::ResizeKernel;
use crate::sample::{RgbImage, Size};

/// Axes kept for the next image of the same size: those of four sizes.
const CACHED_AXES: usize = 8;

/// Reused memory of the resize.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Axes, the last used first.
    recent: Vec<Arc<Axis>>,
    window: Vec<u8>,
    strip: Vec<u8>,
}

/// One image being resized.
#[derive(Debug)]
pub(super) struct Resampler<'a> {
    simd: Simd,
    source: Rows<'a>,
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

/// Rows between the two passes.
#[derive(Debug)]
struct Window<'a> {
    bytes: &'a mut Vec<u8>,
    stride: usize,
    capacity: usize,
    /// Which row of the image its first row is.
    first: usize,
    rows: usize,
}

impl<'a> Resampler<'a> {
    pub(super) fn new(
        source: &'a RgbImage,
        to: Size,
        kernel: ResizeKernel,
        simd: Simd,
        buffers: &'a mut Buffers,
    ) -> Self {
        assert!(source.width > 0 && source.height > 0, "an image has pixels");
        assert_eq!(source.pixels.len(), source.width * source.height * 3, "an image is RGB");
        let passes = Passes::of(source, to, kernel, &mut buffers.recent);
        let mut window = Window {
            bytes: &mut buffers.window,
            stride: stride(to.width as usize),
            capacity: 0,
            first: 0,
            rows: 0,
        };
        match &passes {
            Passes::HorizontalFirst { down, .. } => window.capacity = down.taps * 2 + 6 * STEP,
            Passes::VerticalFirst { .. } => {
                (window.stride, window.capacity) = (stride(source.width), STEP);
            }
            _ => {}
        }
        grow(window.bytes, window.stride * window.capacity);
        let source = Rows { bytes: &source.pixels, stride: source.width * 3 };
        Self { simd, source, to, passes, window, strip: &mut buffers.strip }
    }

    /// Rows `first..first + count` of the result. Strips are asked for downwards, without gaps.
    pub(super) fn strip(&mut self, first: usize, count: usize) -> Rows<'_> {
        let width = self.to.width as usize;
        let (simd, source, stride) = (self.simd, self.source, stride(width));
        if let Passes::None = self.passes {
            return source.from(first);
        }
        grow(self.strip, stride * count);
        let out = &mut self.strip[..stride * count];
        match &self.passes {
            Passes::None => {}
            Passes::Horizontal(across) => {
                for (step, out) in out.chunks_mut(STEP * stride).enumerate() {
                    let (rows, source) = (out.len() / stride, source.from(first + step * STEP));
                    passes::horizontal(simd, across, source, rows, out, stride);
                }
            }
            Passes::Vertical(down) => {
                for (row, out) in out.chunks_exact_mut(stride).enumerate() {
                    let source = source.from(down.span(first + row).start);
                    passes::vertical(simd, down, first + row, source, &mut out[..width * 3]);
                }
            }
            Passes::HorizontalFirst { across, down } => {
                for (row, out) in out.chunks_exact_mut(stride).enumerate() {
                    let rows = self.window.hold(simd, across, source, down.span(first + row));
                    passes::vertical(simd, down, first + row, rows, &mut out[..width * 3]);
                }
            }
            Passes::VerticalFirst { across, down } => {
                for (step, out) in out.chunks_mut(STEP * stride).enumerate() {
                    let (rows, row) = (out.len() / stride, first + step * STEP);
                    let source = self.window.shrink(simd, down, source, row..row + rows);
                    passes::horizontal(simd, across, source, rows, out, stride);
                }
            }
        }
        Rows { bytes: out, stride }
    }
}

impl Passes {
    fn of(source: &RgbImage, to: Size, kernel: ResizeKernel, recent: &mut Vec<Arc<Axis>>) -> Self {
        let (from_width, from_height) = (source.width, source.height);
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

impl Window<'_> {
    /// Makes the window hold rows `span` of the image, resized across, and gives the first of them.
    /// Spans never go back.
    fn hold(
        &mut self,
        simd: Simd,
        across: &Axis,
        source: Rows<'_>,
        span: std::ops::Range<usize>,
    ) -> Rows<'_> {
        let height = source.bytes.len() / source.stride;
        if self.rows == 0 {
            self.first = span.start;
        }
        while self.first + self.rows < span.end {
            if self.rows + STEP > self.capacity {
                self.drop_before(span.start);
            }
            let row = self.first + self.rows;
            let rows = STEP.min(height - row);
            let out = &mut self.bytes[self.rows * self.stride..];
            passes::horizontal(simd, across, source.from(row), rows, out, self.stride);
            self.rows += rows;
        }
        Rows { bytes: self.bytes, stride: self.stride }.from(span.start - self.first)
    }

    fn drop_before(&mut self, row: usize) {
        let gone = row - self.first;
        self.bytes.copy_within(gone * self.stride..self.rows * self.stride, 0);
        (self.first, self.rows) = (row, self.rows - gone);
    }

    /// Makes rows `span` of the result, at the width of the source.
    fn shrink(
        &mut self,
        simd: Simd,
        down: &Axis,
        source: Rows<'_>,
        span: std::ops::Range<usize>,
    ) -> Rows<'_> {
        for (out, row) in self.bytes.chunks_exact_mut(self.stride).zip(span) {
            let taps = source.from(down.span(row).start);
            passes::vertical(simd, down, row, taps, &mut out[..source.stride]);
        }
        Rows { bytes: self.bytes, stride: self.stride }
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
