//! Tokens with what goes along with them: labels, kinds and M-RoPE positions.
//!
//! Positions are those of transformers' `get_rope_index` for images, alike in Qwen2-VL, Qwen2.5-VL
//! and Qwen3-VL: text counts on in all three rows; an image's tokens count its merged blocks in
//! each direction from where the text stopped; the text after it goes on behind the larger side.

use crate::sample::{EncodedText, Grid, token_kind};

/// An [`EncodedText`] that grows from left to right.
#[derive(Debug)]
pub(super) struct Layout {
    text: EncodedText,
    merge_size: u32,
    next_position: u32,
}

impl Layout {
    pub(super) fn new(merge_size: u32) -> Self {
        Self { text: EncodedText::default(), merge_size, next_position: 0 }
    }

    /// Appends a token of text.
    pub(super) fn push(&mut self, token: u32, trained: bool) {
        let at = self.next_position;
        self.push_at(token, trained, token_kind::TEXT, [at; 3]);
        self.next_position += 1;
    }

    /// Appends the placeholders of an image.
    pub(super) fn push_image(&mut self, pad: u32, grid: Grid) {
        let (h, w) = (grid.h / self.merge_size, grid.w / self.merge_size);
        let start = self.next_position;
        for t in 0..grid.t {
            for y in 0..h {
                for x in 0..w {
                    let at = [start + t, start + y, start + x];
                    self.push_at(pad, false, token_kind::IMAGE, at);
                }
            }
        }
        self.text.images += 1;
        self.next_position += h.max(w);
    }

    pub(super) fn finish(self) -> EncodedText {
        self.text
    }

    fn push_at(&mut self, token: u32, trained: bool, kind: u8, position: [u32; 3]) {
        self.text.tokens.push(token);
        self.text.trained.push(trained);
        self.text.kinds.push(kind);
        for (row, at) in self.text.positions.iter_mut().zip(position) {
            row.push(at);
        }
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
            let mut layout = Layout::new(2);
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
