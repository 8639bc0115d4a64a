//! Samples of any layout → 8-bit RGB, by the arithmetic of the references.
//!
//! Compositing on white and the conversion from CMYK are Pillow's integer formulas
//! (`AlphaComposite.c`, `Convert.c`), which transformers and qwen-vl-utils inherit.

use crate::recipe::{Alpha, RgbRules, SixteenBit};

/// How samples that are not RGB lie in memory: one byte each, or two with the high one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Rgba,
    Grey,
    GreyAlpha,
    Grey16,
    Grey16Alpha,
    /// As Adobe stores it: 255 is no ink.
    InvertedCmyk,
}

impl Layout {
    /// Bytes of one pixel.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::GreyAlpha | Self::Grey16 => 2,
            Self::Rgba | Self::Grey16Alpha | Self::InvertedCmyk => 4,
        }
    }
}

/// Whether alpha is composited; `rgba` is whether the reference sees a file with red, green, blue
/// and alpha channels.
pub(super) fn composites(rules: RgbRules, rgba: bool) -> bool {
    match rules.alpha {
        Alpha::White => true,
        Alpha::WhiteIfRgba => rgba,
        Alpha::Drop => false,
    }
}

/// Converts `raw` to RGB; alpha is composited on white or dropped.
pub(super) fn convert(
    layout: Layout,
    composite: bool,
    sixteen_bit: SixteenBit,
    raw: &[u8],
    out: &mut [u8],
) {
    let over = |value, alpha| if composite { over_white(value, alpha) } else { value };
    let narrow = |sample: [u8; 2]| match sixteen_bit {
        SixteenBit::Scale => sample[0],
        SixteenBit::Clip => u8::try_from(u16::from_be_bytes(sample)).unwrap_or(u8::MAX),
    };
    match layout {
        Layout::Rgba => each(raw, out, |[r, g, b, a]| [over(r, a), over(g, a), over(b, a)]),
        Layout::Grey => each(raw, out, |[v]| [v; 3]),
        Layout::GreyAlpha => each(raw, out, |[v, a]| [over(v, a); 3]),
        Layout::Grey16 => each(raw, out, |sample| [narrow(sample); 3]),
        // This alpha comes from a transparent colour: all or nothing.
        Layout::Grey16Alpha => each(raw, out, |[v, w, a, _]| [over(narrow([v, w]), a); 3]),
        Layout::InvertedCmyk => each(raw, out, |[c, m, y, k]| [c, m, y].map(|ink| uncover(ink, k))),
    }
}

fn each<const N: usize>(raw: &[u8], out: &mut [u8], rgb: impl Fn([u8; N]) -> [u8; 3]) {
    for (source, target) in raw.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        *target = rgb(*source);
    }
}

/// A colour composited on white.
fn over_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    divide_by_255(value * alpha + 255 * (255 - alpha))
}

/// Paper as seen through inverted ink and inverted black.
fn uncover(ink: u8, black: u8) -> u8 {
    black - divide_by_255(u32::from(255 - ink) * u32::from(black))
}

/// Rounded division of at most 255 * 255, as Pillow does it.
fn divide_by_255(value: u32) -> u8 {
    let value = value + 128;
    (((value >> 8) + value) >> 8) as u8
}
