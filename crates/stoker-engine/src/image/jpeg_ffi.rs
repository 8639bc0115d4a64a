//! The door to libjpeg-turbo: safe types over the C shim.
//!
//! A [`Session`] is memory for one image after the other, a [`Stream`] one image whose rows are read
//! as they are needed. The shim gets every length from here and checks the header against them before
//! it writes; what libjpeg keeps for itself is freed when the stream is dropped, on errors too. There
//! is no safe twin in this crate, as another decoder would not be exact: the tests compare with pixels
//! that Pillow made.
#![expect(unsafe_code, reason = "libjpeg-turbo is a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::marker::PhantomData;
use std::ptr::NonNull;

// Brings libjpeg-turbo's static library into the link; the shim calls it.
use turbojpeg_sys as _;

#[cfg(target_arch = "x86_64")]
use super::idct::{Transform, transform};
use crate::sample::Size;
use crate::simd::Simd;

/// The shim's state; only C looks inside.
#[repr(C)]
struct State {
    _opaque: [u8; 0],
}

/// Makes samples of four blocks; only ours of [`super::idct`] does.
#[cfg(not(target_arch = "x86_64"))]
type Transform = extern "C" fn();

/// None of ours: libjpeg-turbo's has kernels for this machine.
#[cfg(not(target_arch = "x86_64"))]
fn transform(_: Simd) -> Option<Transform> {
    None
}

/// The shim's `struct ask`.
#[repr(C)]
struct CAsk {
    width: c_uint,
    height: c_uint,
    shrink: c_uint,
    channels: c_int,
    quick: c_int,
    bmi: c_int,
    transform: Option<Transform>,
    planes: c_int,
    max_scans: c_int,
}

unsafe extern "C" {
    fn stoker_jpeg_new() -> *mut State;
    fn stoker_jpeg_free(state: *mut State);
    fn stoker_jpeg_start(
        state: *mut State,
        bytes: *const u8,
        length: usize,
        ask: *const CAsk,
    ) -> c_int;
    fn stoker_jpeg_read(state: *mut State, count: c_uint, out: *mut u8, stride: usize) -> c_int;
    fn stoker_jpeg_planes(state: *const State) -> c_int;
    fn stoker_jpeg_read_planes(
        state: *mut State,
        luma: *mut u8,
        luma_stride: usize,
        blue: *mut u8,
        red: *mut u8,
        chroma_stride: usize,
    ) -> c_int;
    fn stoker_jpeg_message(state: *const State) -> *const c_char;
    fn stoker_jpeg_end(state: *mut State);
}

/// Whether the processor has what the quickest entropy decoder takes.
fn has_bmi() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("bmi1") && std::is_x86_feature_detected!("bmi2");
    #[cfg(not(target_arch = "x86_64"))]
    false
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

/// How an image is to be decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// The size that is to come of it.
    pub(super) size: Size,
    /// 1, 2, 4 or 8: by how much the sides are shrunk.
    pub(super) shrink: u32,
    /// 3 for RGB, 4 for CMYK as stored.
    pub(super) channels: usize,
    /// By which kernels our entropy decoder and what follows it do the work of libjpeg-turbo's: those of the
    /// machine, but in the tests that compare them.
    pub(super) quick: Option<Simd>,
    /// Whether the image may give planes instead of RGB, if they are such as we can mix.
    pub(super) planes: bool,
    /// Most scans of a progressive file.
    pub(super) max_scans: u32,
}

/// Eight rows of colour samples, and room for the rows of brightness that belong to them.
#[derive(Debug)]
pub(super) struct Lot<'a> {
    pub(super) luma: &'a mut [u8],
    pub(super) luma_stride: usize,
    pub(super) blue: &'a mut [u8],
    pub(super) red: &'a mut [u8],
    pub(super) chroma_stride: usize,
}

impl Lot<'_> {
    /// Rows of colour, as blocks have them.
    pub(super) const ROWS: usize = 8;
}

/// Memory for decoding, reused from image to image.
#[derive(Debug)]
pub(super) struct Session(NonNull<State>);

// SAFETY: the state is plain memory that belongs to the session, and C keeps nothing by thread.
unsafe impl Send for Session {}

impl Default for Session {
    fn default() -> Self {
        // SAFETY: it takes nothing and gives memory or null.
        Self(NonNull::new(unsafe { stoker_jpeg_new() }).expect("there is memory for a decoder"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the memory is from `stoker_jpeg_new` and not used again; no stream borrows it.
        unsafe { stoker_jpeg_free(self.0.as_ptr()) }
    }
}

/// An image being decoded.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    session: &'a mut Session,
    row_bytes: usize,
    rows_left: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Stream<'a> {
    /// Reads the header; of a progressive file, all.
    pub(super) fn start(
        session: &'a mut Session,
        bytes: &'a [u8],
        ask: Ask,
    ) -> Result<Self, Failure> {
        let Ask { size, shrink, channels, quick, planes, max_scans } = ask;
        assert!(channels == 3 || channels == 4, "the shim knows RGB and CMYK");
        assert!(matches!(shrink, 1 | 2 | 4 | 8), "libjpeg shrinks fast by these");
        let row_bytes = size.width as usize * channels;
        let rows_left = size.height as usize;
        let stream = Self { session, row_bytes, rows_left, bytes: PhantomData };
        let ask = CAsk {
            width: size.width,
            height: size.height,
            shrink,
            channels: channels as c_int,
            quick: c_int::from(quick.is_some()),
            bmi: c_int::from(has_bmi()),
            transform: quick.and_then(transform),
            planes: c_int::from(planes),
            max_scans: c_int::try_from(max_scans).unwrap_or(c_int::MAX),
        };
        // SAFETY: the state is live, and `bytes` is valid for its length as long as the stream is. It
        // is ended when the stream is dropped, whatever comes of this. No unwinding crosses: the shim
        // calls back into C only.
        let outcome = unsafe {
            stoker_jpeg_start(
                stream.session.0.as_ptr(),
                bytes.as_ptr(),
                bytes.len(),
                &raw const ask,
            )
        };
        stream.judge(outcome).map(|()| stream)
    }

    /// Reads the next rows, `stride` bytes apart. After the last one the rest of the file is read too.
    /// After a failure nothing more can be read.
    pub(super) fn read(
        &mut self,
        rows: usize,
        out: &mut [u8],
        stride: usize,
    ) -> Result<(), Failure> {
        if rows == 0 {
            return Ok(());
        }
        assert!(rows <= self.rows_left, "no more rows are asked for than the image has");
        assert!(self.planes().is_none(), "the image gives RGB");
        let room = (rows - 1) * stride + self.row_bytes;
        assert!(self.row_bytes <= stride && room <= out.len(), "the buffer has room for the rows");
        self.rows_left -= rows;
        // SAFETY: the image was started, and none of its calls failed, or no rows were left. `out` has
        // room for `rows` rows of the size and channels that the shim made sure of. The shim calls the
        // transform, which does not panic, with memory of its own that is aligned as the types say.
        let outcome = unsafe {
            stoker_jpeg_read(self.session.0.as_ptr(), rows as c_uint, out.as_mut_ptr(), stride)
        };
        if outcome != 0 {
            self.rows_left = 0;
        }
        self.judge(outcome)
    }

    /// Rows of brightness for each of colour, of an image that gives planes, whose colour is half as wide: it is
    /// read by [`Self::read_lot`], and others by [`Self::read`].
    pub(super) fn planes(&self) -> Option<usize> {
        // SAFETY: the image was started.
        let down = unsafe { stoker_jpeg_planes(self.session.0.as_ptr()) };
        usize::try_from(down).ok().filter(|down| *down > 0)
    }

    /// Reads the next lot of an image that gives planes. After the last one the rest of the file is read too. After
    /// a failure nothing more can be read.
    pub(super) fn read_lot(&mut self, lot: Lot<'_>) -> Result<(), Failure> {
        let Lot { luma, luma_stride, blue, red, chroma_stride } = lot;
        let down = self.planes().expect("the image gives planes");
        assert!(self.rows_left > 0, "no more is asked for than the image has");
        assert!(Lot::ROWS * down * luma_stride <= luma.len(), "there is room for brightness");
        let room = Lot::ROWS * chroma_stride;
        assert!(room <= blue.len() && room <= red.len(), "and for colour");
        self.rows_left = self.rows_left.saturating_sub(Lot::ROWS * down);
        // SAFETY: the image was started, none of its calls failed, and rows are left. There is room for
        // all rows of a lot, and the shim makes sure that none is longer than its stride. As for a
        // transform, see `read`.
        let outcome = unsafe {
            stoker_jpeg_read_planes(
                self.session.0.as_ptr(),
                luma.as_mut_ptr(),
                luma_stride,
                blue.as_mut_ptr(),
                red.as_mut_ptr(),
                chroma_stride,
            )
        };
        if outcome != 0 {
            self.rows_left = 0;
        }
        self.judge(outcome)
    }

    fn judge(&self, outcome: c_int) -> Result<(), Failure> {
        match outcome {
            0 => Ok(()),
            2 => Err(Failure::Truncated),
            3 => Err(Failure::TooManyScans),
            4 => Err(Failure::OtherSize),
            _ => {
                // SAFETY: the message is in the state, and libjpeg ends it with a zero.
                let text = unsafe { CStr::from_ptr(stoker_jpeg_message(self.session.0.as_ptr())) };
                Err(Failure::Corrupt(text.to_string_lossy().into_owned()))
            }
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // SAFETY: the image was started; libjpeg takes this after failures too.
        unsafe { stoker_jpeg_end(self.session.0.as_ptr()) }
    }
}
