//! Writing tensors from their start to their end.

use std::ops::Range;

use super::layout::Layout;

/// The part of an arena behind the pixels.
pub(super) struct Page<'a> {
    layout: &'a Layout,
    start: usize,
    bytes: &'a mut [u8],
}

impl<'a> Page<'a> {
    /// `bytes` end where the arena does.
    pub(super) fn new(layout: &'a Layout, bytes: &'a mut [u8]) -> Self {
        Self { layout, start: layout.bytes - bytes.len(), bytes }
    }

    pub(super) fn pen(&mut self, name: &str) -> Pen<'_> {
        let tensor = self.layout.tensor(name).expect("the layout has what it is asked to write");
        let Range { start, end } = tensor.range();
        let row = tensor.shape.last().copied().unwrap_or(0);
        Pen { rest: &mut self.bytes[start - self.start..end - self.start], row }
    }
}

/// Writes one tensor.
pub(super) struct Pen<'a> {
    rest: &'a mut [u8],
    row: usize,
}

impl Pen<'_> {
    /// Elements of a row.
    pub(super) fn row_length(&self) -> usize {
        self.row
    }

    /// Writes i64.
    pub(super) fn whole(&mut self, values: impl IntoIterator<Item = i64>) {
        self.write(values.into_iter().map(i64::to_ne_bytes));
    }

    /// Writes i32.
    pub(super) fn short(&mut self, values: impl IntoIterator<Item = i32>) {
        self.write(values.into_iter().map(i32::to_ne_bytes));
    }

    /// Writes a row of i64, filled up.
    pub(super) fn row(&mut self, values: impl ExactSizeIterator<Item = i64>, padding: i64) {
        let missing = self.row - values.len();
        self.whole(values);
        self.whole(std::iter::repeat_n(padding, missing));
    }

    fn write<const BYTES: usize>(&mut self, values: impl Iterator<Item = [u8; BYTES]>) {
        for value in values {
            let (head, rest) =
                std::mem::take(&mut self.rest).split_first_chunk_mut().expect("room in the tensor");
            *head = value;
            self.rest = rest;
        }
    }
}
