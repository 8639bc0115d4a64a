//! Tokens with what goes along with them: labels, kinds and M-RoPE positions.
//!
//! Positions are those of transformers' `get_rope_index` for images, alike in Qwen2-VL, Qwen2.5-VL
//! and Qwen3-VL: text counts on in all three rows; an image's tokens count its merged blocks in
//! each direction from where the text stopped; the text after it goes on behind the larger side.

use std::iter;

use crate::sample::{EncodedText, Grid, token_kind};

/// An [`EncodedText`] that grows from left to right.
#[derive(Debug)]
pub(super) struct Layout {
    text: EncodedText,
    merge_size: u32,
    next_position: u32,
}

impl Layout {
    /// An empty one, with memory for so many tokens.
    pub(super) fn new(merge_size: u32, tokens: usize) -> Self {
        let text = EncodedText {
            tokens: Vec::with_capacity(tokens),
            trained: Vec::with_capacity(tokens),
            kinds: Vec::with_capacity(tokens),
            positions: [(); 3].map(|()| Vec::with_capacity(tokens)),
            images: 0,
        };
        Self { text, merge_size, next_position: 0 }
    }

    /// Appends a token of text.
    pub(super) fn push(&mut self, token: u32, trained: bool) {
        self.push_text(iter::once(token), &[trained]);
    }

    /// Appends tokens of text.
    pub(super) fn push_text(&mut self, tokens: impl Iterator<Item = u32>, trained: &[bool]) {
        let (from, count) = (self.next_position, trained.len());
        self.next_position += count as u32;
        self.text.tokens.extend(tokens);
        self.text.trained.extend_from_slice(trained);
        self.text.kinds.extend(iter::repeat_n(token_kind::TEXT, count));
        for row in &mut self.text.positions {
            row.extend(from..self.next_position);
        }
    }

    /// Appends the placeholders of an image.
    pub(super) fn push_image(&mut self, pad: u32, grid: Grid) {
        let (h, w) = (grid.h / self.merge_size, grid.w / self.merge_size);
        let start = self.next_position;
        let (row, frame) = (w as usize, h as usize * w as usize);
        let all = grid.t as usize * frame;
        self.text.tokens.extend(iter::repeat_n(pad, all));
        self.text.trained.extend(iter::repeat_n(false, all));
        self.text.kinds.extend(iter::repeat_n(token_kind::IMAGE, all));
        let [temporal, height, width] = &mut self.text.positions;
        for t in 0..grid.t {
            temporal.extend(iter::repeat_n(start + t, frame));
            for y in 0..h {
                height.extend(iter::repeat_n(start + y, row));
                width.extend(start..start + w);
            }
        }
        self.text.images += 1;
        self.next_position += h.max(w);
    }

    pub(super) fn finish(self) -> EncodedText {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn positions_equal_get_rope_index_on_the_golden_image_cases() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/golden/text/rope.json");
        let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let numbers = |value: &Value| -> Vec<u32> {
            value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
        };
        let mut checked = 0;
        for case in cases.as_array().unwrap() {
            let tokens = numbers(&case["input_ids"]);
            let grids: Vec<Vec<u32>> =
                case["image_grid_thw"].as_array().unwrap().iter().map(numbers).collect();
            let mut layout = Layout::new(2, 0);
            let mut grids = grids.iter().map(|g| Grid { t: g[0], h: g[1], w: g[2] });
            let mut at = 0;
            while at < tokens.len() {
                if tokens[at] == 151_655 {
                    let grid = grids.next().unwrap();
                    layout.push_image(151_655, grid);
                    at += grid.tokens(2);
                } else {
                    layout.push(tokens[at], false);
                    at += 1;
                }
            }
            let text = layout.finish();
            assert_eq!(text.tokens, tokens);
            for (row, expected) in
                text.positions.iter().zip(case["position_ids"].as_array().unwrap())
            {
                assert_eq!(*row, numbers(expected), "{}", case["kind"]);
            }
            checked += 1;
        }
        assert_eq!(checked, 3);
    }
}
