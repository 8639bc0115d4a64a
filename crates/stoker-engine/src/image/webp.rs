//! WebP, by libwebp.
//!
//! Of an animation the first frame is decoded, on a transparent canvas (black where the file has no
//! alpha), as Pillow shows it; the other frames cost nothing.

use libwebp_sys::VP8StatusCode;

use super::bytes::{le24, le32, take};
use super::rgb::{Layout, composites, convert};
use super::webp_ffi::{self, Features};
use super::{Head, bad_header, corrupt, resize, truncated};
use crate::error::Flaw;
use crate::recipe::{RgbRules, SixteenBit};
use crate::sample::Size;

/// `RIFF`, length and `WEBP`.
const SIGNATURE: usize = 12;
/// Type and length of a chunk.
const CHUNK: usize = 8;
/// Place, size, duration and flags of a frame, before its data.
const FRAME: usize = 16;

/// The size alone, of a file that may go on.
pub(super) fn size(bytes: &[u8]) -> Result<Size, Flaw> {
    webp_ffi::features(bytes).map(|features| features.size).map_err(refuse)
}

pub(super) fn head(bytes: &[u8]) -> Result<Head<'_>, Flaw> {
    let size = size(bytes)?;
    let promised = le32(bytes, 4).ok_or_else(truncated)? as usize + CHUNK;
    if promised > bytes.len() {
        return Err(truncated());
    }
    Ok(Head { size, exif: chunk(bytes, *b"EXIF"), scans: 1 })
}

/// The data of the first chunk of this type.
fn chunk(bytes: &[u8], wanted: [u8; 4]) -> Option<&[u8]> {
    let mut at = SIGNATURE;
    loop {
        let kind: [u8; 4] = take(bytes, at)?;
        let length = le32(bytes, at + 4)? as usize;
        if kind == wanted {
            return bytes.get(at + CHUNK..at + CHUNK + length);
        }
        at += CHUNK + length + length % 2;
    }
}

pub(super) fn decode(
    bytes: &[u8],
    size: Size,
    rules: RgbRules,
    raw: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), Flaw> {
    let features = webp_ffi::features(bytes).map_err(refuse)?;
    if features.size != size {
        return Err(corrupt("the header contradicts itself"));
    }
    if !(features.alpha && composites(rules, true)) {
        return first(bytes, features, 3, out);
    }
    resize(raw, size.pixels() * 4)?;
    first(bytes, features, 4, raw)?;
    convert(Layout::Rgba, true, SixteenBit::Scale, raw, out);
    Ok(())
}

fn first(bytes: &[u8], features: Features, channels: usize, out: &mut [u8]) -> Result<(), Flaw> {
    if features.animated {
        return first_frame(bytes, features.size, channels, out);
    }
    let stride = features.size.width as usize * channels;
    webp_ffi::decode(bytes, features.size, channels, stride, out).map_err(refuse)
}

fn first_frame(bytes: &[u8], canvas: Size, channels: usize, out: &mut [u8]) -> Result<(), Flaw> {
    let frame = chunk(bytes, *b"ANMF").ok_or_else(|| corrupt("the animation has no frame"))?;
    let field = |at| le24(frame, at).ok_or_else(|| bad_header("a frame is too short"));
    let (left, top) = (field(0)? * 2, field(3)? * 2);
    let size = Size { width: field(6)? + 1, height: field(9)? + 1 };
    if left + size.width > canvas.width || top + size.height > canvas.height {
        return Err(corrupt("the first frame is larger than the image"));
    }
    let data = frame.get(FRAME..).ok_or_else(|| bad_header("a frame is too short"))?;
    let stride = canvas.width as usize * channels;
    out.fill(0);
    let first = top as usize * stride + left as usize * channels;
    webp_ffi::decode(data, size, channels, stride, &mut out[first..]).map_err(refuse)
}

fn refuse(status: VP8StatusCode) -> Flaw {
    match status {
        VP8StatusCode::VP8_STATUS_NOT_ENOUGH_DATA | VP8StatusCode::VP8_STATUS_SUSPENDED => {
            truncated()
        }
        status => corrupt(format_args!("libwebp says {status:?}")),
    }
}
