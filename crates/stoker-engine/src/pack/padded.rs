//! The padded layout: a row for each sample, filled up on the right. With B rows of at most L tokens:
//!
//! | tensor | dtype | shape |
//! |---|---|---|
//! | `input_ids` | i64 | `[B, L]`, padded with the pad token |
//! | `attention_mask` | i64 | `[B, L]`, 1 for tokens, 0 for padding |
//! | `labels` | i64 | `[B, L]`, -100 where nothing is learned |
//! | `mm_token_type_ids` | i64 | `[B, L]`, 0 text, 1 image |
//! | `position_ids` | i64 | `[3, B, L]`, 0 in the padding |

use super::layout::{Scalar, Shelf};
use super::write::Page;
use super::{IGNORED, Segment};
use crate::sample::{Dtype, token_kind};

pub(super) fn place(shelf: &mut Shelf, segments: &[Segment<'_>], multiple: usize) -> Vec<Scalar> {
    let longest = segments.iter().map(Segment::len).max().unwrap_or(0);
    let (rows, length) = (segments.len(), longest.next_multiple_of(multiple));
    for name in ["input_ids", "attention_mask", "labels", "mm_token_type_ids"] {
        shelf.put(name, Dtype::I64, vec![rows, length]);
    }
    shelf.put("position_ids", Dtype::I64, vec![3, rows, length]);
    Vec::new()
}

pub(super) fn write(page: &mut Page<'_>, segments: &[Segment<'_>], pad_token: u32) {
    let mut pen = page.pen("input_ids");
    for segment in segments {
        pen.row(segment.input_ids(), pad_token.into());
    }
    let mut pen = page.pen("attention_mask");
    for segment in segments {
        pen.row(segment.input_ids().map(|_| 1), 0);
    }
    let mut pen = page.pen("labels");
    for segment in segments {
        pen.row(segment.labels(), IGNORED);
    }
    let mut pen = page.pen("mm_token_type_ids");
    for segment in segments {
        let kinds = segment.text.kinds.iter().map(|&kind| i64::from(kind));
        pen.row(kinds, token_kind::TEXT.into());
    }
    let mut pen = page.pen("position_ids");
    for axis in 0..3 {
        for segment in segments {
            pen.row(segment.positions(axis), 0);
        }
    }
}
