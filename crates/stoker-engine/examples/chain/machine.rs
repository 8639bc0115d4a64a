//! What the measurement takes from C: libjpeg-turbo by itself, and the clock of this thread.
#![expect(unsafe_code, reason = "both are C functions")]

use std::ffi::c_int;
use std::ptr;

use turbojpeg_sys::{
    TJINIT_TJINIT_DECOMPRESS, TJPF_TJPF_RGB, tj3Decompress8, tj3DecompressHeader, tj3Destroy,
    tj3Init, tjhandle,
};

/// libjpeg-turbo's own simple interface: the limit that the chain is compared with.
#[derive(Debug)]
pub(crate) struct Turbo(tjhandle);

impl Turbo {
    pub(crate) fn new() -> Self {
        // SAFETY: it takes a number and gives a handle or null.
        let handle = unsafe { tj3Init(TJINIT_TJINIT_DECOMPRESS as c_int) };
        assert!(!handle.is_null(), "libjpeg-turbo has memory for a decoder");
        Self(handle)
    }

    /// Decodes to RGB; `pixels` is of the image's size.
    pub(crate) fn decode(&mut self, bytes: &[u8], width: usize, pixels: &mut [u8]) {
        assert!(pixels.len().is_multiple_of(width * 3), "the buffer has whole rows");
        let pitch = c_int::try_from(width * 3).expect("a row is short");
        // SAFETY: the handle is live; `bytes` is valid for its length; the caller measured the image
        // with the engine's own header reader, which the assertions in `main` compare with pixels.
        let outcome = unsafe {
            let length = bytes.len().try_into().expect("a file is short");
            let header = tj3DecompressHeader(self.0, bytes.as_ptr(), length);
            let rgb = TJPF_TJPF_RGB;
            let out = pixels.as_mut_ptr();
            header | tj3Decompress8(self.0, bytes.as_ptr(), length, out, pitch, rgb)
        };
        assert_eq!(outcome, 0, "libjpeg-turbo decodes the photo");
    }
}

impl Drop for Turbo {
    fn drop(&mut self) {
        // SAFETY: the handle is live and not used again.
        unsafe { tj3Destroy(self.0) }
    }
}

/// Seconds that this thread has run: others on the machine do not count.
pub(crate) fn busy() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the one struct.
    let outcome =
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, ptr::from_mut(&mut time)) };
    assert_eq!(outcome, 0, "threads have clocks");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
