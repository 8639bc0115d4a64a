//! The door to libjpeg-turbo: one safe function over the C shim.
//!
//! The shim gets every length from here and checks the header against them before it writes; what
//! libjpeg keeps for itself it frees before it returns, on errors too. There is no safe twin in this
//! crate, as another decoder would not be exact: the tests compare with pixels that Pillow made.
#![expect(unsafe_code, reason = "libjpeg-turbo is a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint};

// Brings libjpeg-turbo's static library into the link; the shim calls it.
use turbojpeg_sys as _;

use crate::sample::Size;

/// Room for a message of libjpeg: its JMSG_LENGTH_MAX.
const MESSAGE_ROOM: usize = 200;

unsafe extern "C" {
    fn stoker_jpeg_decode(
        bytes: *const u8,
        length: usize,
        width: c_uint,
        height: c_uint,
        channels: c_int,
        max_scans: c_int,
        out: *mut u8,
        message: *mut c_char,
    ) -> c_int;
}

/// Why libjpeg gave up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The data is not JPEG, in libjpeg's words.
    Corrupt(String),
    /// It read past the end.
    Truncated,
    /// There are more scans than allowed.
    TooManyScans,
    /// Size or number of channels are not what was asked for.
    OtherSize,
}

/// Decodes to RGB (`channels` 3) or to CMYK as stored (`channels` 4).
///
/// `out` must hold `width * height * channels` bytes.
pub(super) fn decode(
    bytes: &[u8],
    size: Size,
    channels: usize,
    max_scans: u32,
    out: &mut [u8],
) -> Result<(), Failure> {
    assert!(channels == 3 || channels == 4, "the shim knows RGB and CMYK");
    assert_eq!(out.len() as u64, size.pixels() * channels as u64, "the buffer fits the image");
    let mut message: [c_char; MESSAGE_ROOM] = [0; MESSAGE_ROOM];
    // SAFETY: `bytes` and `out` are valid for the lengths that are passed or implied: the shim
    // writes only after it found that the image has this width, height and number of channels,
    // which the assertion above ties to the length of `out`. `message` has the room that libjpeg
    // documents. No unwinding crosses: the shim calls back into C only.
    let outcome = unsafe {
        stoker_jpeg_decode(
            bytes.as_ptr(),
            bytes.len(),
            size.width,
            size.height,
            channels as c_int,
            c_int::try_from(max_scans).unwrap_or(c_int::MAX),
            out.as_mut_ptr(),
            message.as_mut_ptr(),
        )
    };
    match outcome {
        0 => Ok(()),
        2 => Err(Failure::Truncated),
        3 => Err(Failure::TooManyScans),
        4 => Err(Failure::OtherSize),
        _ => {
            message[MESSAGE_ROOM - 1] = 0;
            // SAFETY: the last byte of `message` was just set to 0.
            let text = unsafe { CStr::from_ptr(message.as_ptr()) };
            Err(Failure::Corrupt(text.to_string_lossy().into_owned()))
        }
    }
}
