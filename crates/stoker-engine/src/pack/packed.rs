//! The packed layout: one row of T tokens, each sample a segment of it that sees no other. Padding
//! is a segment of its own, counted on from 0. With n segments:
//!
//! | tensor | dtype | shape |
//! |---|---|---|
//! | `input_ids` | i64 | `[1, T]` |
//! | `labels` | i64 | `[1, T]`, -100 where nothing is learned and on the first token of each segment |
//! | `position_ids` | i64 | `[4, 1, T]`: place in the segment; temporal, height, width, each from 0 |
//! | `cu_seq_lens_q`, `cu_seq_lens_k` | i32 | `[n + 1]`, where segments begin, then T |
//! | `max_length_q`, `max_length_k` | number | tokens of the longest segment |
//! | `use_cache` | false | |
//!
//! The four rows, no `attention_mask` and no cache are what makes transformers (from 4.53 on) keep
//! the segments apart, by its `find_packed_sequence_indices`; with any of them missing samples leak
//! into each other without a word. The rest tells flash attention the same.
//!
//! The layout of Qwen's own finetuning code (`FlattenedDataCollatorForSupervisedDataset` of
//! qwen-vl-finetune, for the attention that it patches in) has the same `input_ids` and `labels`,
//! the last three rows of `position_ids`, and where segments begin as `attention_mask`.

use super::layout::{Scalar, ScalarValue, Shelf};
use super::write::{Page, Pen};
use super::{IGNORED, Segment};
use crate::sample::Dtype;

pub(super) fn place(shelf: &mut Shelf, segments: &[Segment<'_>], multiple: usize) -> Vec<Scalar> {
    let starts = starts(segments, tokens(segments).next_multiple_of(multiple));
    place_tokens(shelf, &starts, 4);
    for name in ["cu_seq_lens_q", "cu_seq_lens_k"] {
        shelf.put(name, Dtype::I32, vec![starts.len()]);
    }
    let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let longest = ScalarValue::Whole(longest as u64);
    vec![
        Scalar { name: "max_length_q", value: longest },
        Scalar { name: "max_length_k", value: longest },
        Scalar { name: "use_cache", value: ScalarValue::Flag(false) },
    ]
}

pub(super) fn place_official_finetune(
    shelf: &mut Shelf,
    segments: &[Segment<'_>],
    multiple: usize,
) -> Vec<Scalar> {
    let starts = starts(segments, tokens(segments).next_multiple_of(multiple));
    place_tokens(shelf, &starts, 3);
    shelf.put("attention_mask", Dtype::I32, vec![starts.len()]);
    Vec::new()
}

fn place_tokens(shelf: &mut Shelf, starts: &[usize], position_rows: usize) {
    let length = starts.last().copied().unwrap_or(0);
    shelf.put("input_ids", Dtype::I64, vec![1, length]);
    shelf.put("labels", Dtype::I64, vec![1, length]);
    shelf.put("position_ids", Dtype::I64, vec![position_rows, 1, length]);
}

/// Where the segments of a row of that length begin, the padding's too, and where the last one ends.
fn starts(segments: &[Segment<'_>], length: usize) -> Vec<usize> {
    let mut starts = vec![0];
    let mut end = 0;
    for segment in segments {
        end += segment.len();
        starts.push(end);
    }
    if length > end {
        starts.push(length);
    }
    starts
}

pub(super) fn write(page: &mut Page<'_>, segments: &[Segment<'_>], pad_token: u32) {
    let length = write_tokens(page, segments, pad_token);
    let mut pen = page.pen("position_ids");
    for segment in segments {
        pen.whole(0..segment.len() as i64);
    }
    write_padding(&mut pen, segments);
    write_positions(&mut pen, segments);
    for name in ["cu_seq_lens_q", "cu_seq_lens_k"] {
        write_starts(&mut page.pen(name), segments, length);
    }
}

pub(super) fn write_official_finetune(
    page: &mut Page<'_>,
    segments: &[Segment<'_>],
    pad_token: u32,
) {
    let length = write_tokens(page, segments, pad_token);
    write_positions(&mut page.pen("position_ids"), segments);
    write_starts(&mut page.pen("attention_mask"), segments, length);
}

/// Writes tokens and labels; their length.
fn write_tokens(page: &mut Page<'_>, segments: &[Segment<'_>], pad_token: u32) -> usize {
    let mut pen = page.pen("input_ids");
    let length = pen.row_length();
    let padding = length - tokens(segments);
    for segment in segments {
        pen.whole(segment.input_ids());
    }
    pen.whole(std::iter::repeat_n(pad_token.into(), padding));
    let mut pen = page.pen("labels");
    for segment in segments {
        pen.whole(
            segment.labels().enumerate().map(|(at, label)| if at == 0 { IGNORED } else { label }),
        );
    }
    pen.whole(std::iter::repeat_n(IGNORED, padding));
    length
}

fn write_positions(pen: &mut Pen<'_>, segments: &[Segment<'_>]) {
    for axis in 0..3 {
        for segment in segments {
            pen.whole(segment.positions(axis));
        }
        write_padding(pen, segments);
    }
}

fn write_padding(pen: &mut Pen<'_>, segments: &[Segment<'_>]) {
    let padding = pen.row_length() - tokens(segments);
    pen.whole(0..padding as i64);
}

fn write_starts(pen: &mut Pen<'_>, segments: &[Segment<'_>], length: usize) {
    let short = |start| i32::try_from(start).expect("no memory holds a row of 2^31 tokens");
    pen.short(starts(segments, length).into_iter().map(short));
}

fn tokens(segments: &[Segment<'_>]) -> usize {
    segments.iter().map(Segment::len).sum()
}
