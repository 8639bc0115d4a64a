//! The door to libwebp: its header call and its decoder, made safe.
//!
//! Lengths are checked here before libwebp sees a pointer. There is no safe twin in this crate: the
//! tests compare with pixels that Pillow made.
#![expect(unsafe_code, reason = "libwebp is a C library")]

use std::mem::MaybeUninit;

use libwebp_sys::{
    VP8StatusCode, WEBP_CSP_MODE, WebPDecode, WebPDecoderConfig, WebPGetFeatures, WebPRGBABuffer,
};

use crate::sample::Size;

/// What libwebp says of the format of a lossy image.
const LOSSY: i32 = 1;

/// What libwebp reads from the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// Of the image, or of the canvas of an animation.
    pub(super) size: Size,
    pub(super) alpha: bool,
    pub(super) animated: bool,
    /// Whether it is known to be lossy; frames of an animation may be of both kinds.
    pub(super) lossy: bool,
}

/// Reads the header.
pub(super) fn features(bytes: &[u8]) -> Result<Features, VP8StatusCode> {
    let mut features = MaybeUninit::zeroed();
    // SAFETY: `bytes` is valid for its length, and libwebp fills in the struct it is given.
    let status = unsafe { WebPGetFeatures(bytes.as_ptr(), bytes.len(), features.as_mut_ptr()) };
    if status != VP8StatusCode::VP8_STATUS_OK {
        return Err(status);
    }
    // SAFETY: all fields are integers, for which zeros are a value, and libwebp reported success.
    let features = unsafe { features.assume_init() };
    Ok(Features {
        size: Size { width: features.width as u32, height: features.height as u32 },
        alpha: features.has_alpha != 0,
        animated: features.has_animation != 0,
        lossy: features.format == LOSSY,
    })
}

/// Decodes a still image to rows of RGB (`channels` 3) or RGBA (`channels` 4), `stride` bytes apart.
pub(super) fn decode(
    bytes: &[u8],
    size: Size,
    channels: usize,
    stride: usize,
    out: &mut [u8],
) -> Result<(), VP8StatusCode> {
    let (width, height) = (size.width as usize, size.height as usize);
    assert!(width > 0 && height > 0 && stride >= width * channels, "rows do not overlap");
    assert!(out.len() >= (height - 1) * stride + width * channels, "the buffer fits the image");
    let found = features(bytes)?;
    if found.size != size || found.animated {
        return Err(VP8StatusCode::VP8_STATUS_BITSTREAM_ERROR);
    }
    let mut config =
        WebPDecoderConfig::new().map_err(|()| VP8StatusCode::VP8_STATUS_INVALID_PARAM)?;
    config.output.colorspace =
        if channels == 4 { WEBP_CSP_MODE::MODE_RGBA } else { WEBP_CSP_MODE::MODE_RGB };
    config.output.is_external_memory = 1;
    config.output.u.RGBA = WebPRGBABuffer {
        rgba: out.as_mut_ptr(),
        stride: i32::try_from(stride).map_err(|_| VP8StatusCode::VP8_STATUS_INVALID_PARAM)?,
        size: out.len(),
    };
    // SAFETY: `bytes` is valid for its length; the output is memory of ours that libwebp neither
    // frees nor keeps, and libwebp itself checks `size` and `stride` against the image it finds.
    let status = unsafe { WebPDecode(bytes.as_ptr(), bytes.len(), &raw mut config) };
    if status == VP8StatusCode::VP8_STATUS_OK { Ok(()) } else { Err(status) }
}
