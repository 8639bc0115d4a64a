//! JPEG: libjpeg-turbo, bit for bit what Pillow gives.
//!
//! The header reader walks the markers up to the first scan as libjpeg does, junk between them
//! included. What is sure to fail is found here already, while the sample can still be replaced: no
//! end marker means truncated (Pillow refuses it too, even if all pixels are there), and scans are
//! counted before any is decoded. Arithmetic coding is read; 12-bit and lossless are not.

use memchr::memmem;

use super::bytes::{be16, take};
use super::jpeg_ffi::{Session, Stream};
use super::planes::{self, Planes};
use super::rgb::{Layout, convert};
use super::{
    Head, bad_header, colours, corrupt, jpeg_ffi, resize, too_many_scans, truncated, unsupported,
};
use crate::error::Flaw;
use crate::recipe::SixteenBit;
use crate::sample::{PixelRows, Size};
use crate::simd::Simd;

/// What is found before the first scan.
struct Frame<'a> {
    size: Size,
    components: u8,
    progressive: bool,
    exif: Option<&'a [u8]>,
    /// Bytes of the coefficients of the whole image.
    coefficients: u64,
    /// Where the first scan's header ends.
    data: usize,
    /// How many components the first scan has.
    scanned: u8,
}

pub(super) fn head(bytes: &[u8]) -> Result<Head<'_>, Flaw> {
    let frame = frame(bytes)?;
    let data = &bytes[frame.data..];
    if memmem::rfind(data, b"\xFF\xD9").is_none() {
        return Err(truncated());
    }
    // Inside coded data 0xFF is followed by 0 or a restart marker, so this pair starts a scan.
    let scans = if frame.progressive || frame.scanned < frame.components {
        1 + memmem::find_iter(data, b"\xFF\xDA").count() as u32
    } else {
        1
    };
    Ok(Head { size: frame.size, exif: frame.exif, scans })
}

/// The size alone, of a file that may go on.
pub(super) fn size(bytes: &[u8]) -> Result<Size, Flaw> {
    frame(bytes).map(|frame| frame.size)
}

/// What decoding a JPEG takes besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// As stored, when it is shrunk.
    pub(super) size: Size,
    /// 1, 2, 4 or 8: by how much it is shrunk.
    pub(super) shrink: u32,
    pub(super) max_scans: u32,
}

/// What decoding takes, reused from image to image.
#[derive(Debug)]
pub(super) struct Memory {
    session: Session,
    planes: planes::Buffers,
    simd: Simd,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            session: Session::default(),
            planes: planes::Buffers::default(),
            simd: Simd::detect(),
        }
    }
}

/// A JPEG of up to three components, as RGB while it is decoded.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    pixels: Pixels<'a>,
    ask: Ask,
}

/// Who mixes colours.
#[derive(Debug)]
enum Pixels<'a> {
    Theirs(Stream<'a>),
    Ours(Planes<'a>),
}

impl<'a> Rows<'a> {
    pub(super) fn open(memory: &'a mut Memory, bytes: &'a [u8], ask: Ask) -> Result<Self, Flaw> {
        let Memory { session, planes, simd } = memory;
        let Ask { size, shrink, max_scans } = ask;
        let ours = colours::has_kernels(*simd);
        let quick = Some(*simd);
        let how = jpeg_ffi::Ask { size, shrink, channels: 3, quick, planes: ours, max_scans };
        let stream = Stream::start(session, bytes, how).map_err(|f| refuse(f, max_scans))?;
        let pixels = match stream.planes() {
            Some(down) => Pixels::Ours(Planes::new(stream, down, size, *simd, planes)),
            None => Pixels::Theirs(stream),
        };
        Ok(Self { pixels, ask })
    }
}

impl PixelRows for Rows<'_> {
    fn size(&self) -> Size {
        self.ask.size
    }

    fn read(&mut self, count: usize, out: &mut [u8], stride: usize) -> Result<(), Flaw> {
        match &mut self.pixels {
            Pixels::Theirs(stream) => stream.read(count, out, stride),
            Pixels::Ours(planes) => planes.read(count, out, stride),
        }
        .map_err(|f| refuse(f, self.ask.max_scans))
    }
}

/// Whether it has a colour more than [`Rows`] can give.
pub(super) fn is_cmyk(bytes: &[u8]) -> Result<bool, Flaw> {
    Ok(frame(bytes)?.components == 4)
}

/// Decodes all of it.
pub(super) fn decode(
    memory: &mut Memory,
    bytes: &[u8],
    ask: Ask,
    raw: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), Flaw> {
    let Ask { size, shrink, max_scans } = ask;
    let (width, height) = (size.width as usize, size.height as usize);
    if !is_cmyk(bytes)? {
        return Rows::open(memory, bytes, ask)?.read(height, out, width * 3);
    }
    resize(raw, size.pixels() * 4)?;
    let quick = Some(memory.simd);
    let how = jpeg_ffi::Ask { size, shrink, channels: 4, quick, planes: false, max_scans };
    Stream::start(&mut memory.session, bytes, how)
        .and_then(|mut stream| stream.read(height, raw, width * 4))
        .map_err(|f| refuse(f, max_scans))?;
    convert(Layout::InvertedCmyk, false, SixteenBit::Scale, raw, out);
    Ok(())
}

/// Bytes that decoding takes besides its RGB: CMYK before it is converted, and where there are several
/// scans all coefficients, which libjpeg keeps until the last one is read.
pub(super) fn scratch(bytes: &[u8], pixels: u64) -> u64 {
    let Ok(frame) = frame(bytes) else { return 0 };
    let cmyk = if frame.components == 4 { pixels * 4 } else { 0 };
    let is_whole = frame.progressive || frame.scanned < frame.components;
    cmyk + if is_whole { frame.coefficients } else { 0 }
}

/// Of components as a frame describes them, three bytes each: two bytes for each sample.
fn coefficients(size: Size, components: &[u8]) -> u64 {
    let factors =
        components.chunks_exact(3).map(|component| (component[1] >> 4, component[1] & 15));
    let factors: Vec<(u64, u64)> =
        factors.map(|(h, v)| (h.max(1).into(), v.max(1).into())).collect();
    let most = |it: &dyn Fn(&(u64, u64)) -> u64| factors.iter().map(it).max().unwrap_or(1);
    let (across, down) = (most(&|it| it.0), most(&|it| it.1));
    let (width, height) = (u64::from(size.width), u64::from(size.height));
    let blocks =
        |(h, v): &(u64, u64)| (width * h).div_ceil(across * 8) * (height * v).div_ceil(down * 8);
    factors.iter().map(blocks).sum::<u64>() * 128
}

fn refuse(failure: jpeg_ffi::Failure, max_scans: u32) -> Flaw {
    match failure {
        jpeg_ffi::Failure::Corrupt(what) => corrupt(what),
        jpeg_ffi::Failure::Truncated => truncated(),
        jpeg_ffi::Failure::TooManyScans => too_many_scans(max_scans),
        jpeg_ffi::Failure::OtherSize => corrupt("the header contradicts itself"),
    }
}

fn frame(bytes: &[u8]) -> Result<Frame<'_>, Flaw> {
    let mut start = None;
    let mut exif = None;
    let mut at = 2;
    loop {
        let (marker, segment) = next_marker(bytes, at).ok_or_else(truncated)?;
        match marker {
            0x01 | 0xD0..=0xD7 => {
                at = segment;
                continue;
            }
            0xD8 | 0xD9 => return Err(bad_header("there is no image before the end marker")),
            _ => {}
        }
        let length = usize::from(be16(bytes, segment).ok_or_else(truncated)?);
        let body = bytes.get(segment..segment + length).ok_or_else(truncated)?;
        let body =
            body.get(2..).ok_or_else(|| bad_header("a segment has no room for its length"))?;
        at = segment + length;
        match marker {
            // Tables and reserved: the numbers among those of frames that are none.
            0xC4 | 0xC8 | 0xCC => {}
            0xC0..=0xCF => start = Some(start_of_frame(marker, body)?),
            0xE1 if exif.is_none() && body.starts_with(b"Exif\0") => exif = body.get(6..),
            0xDA => {
                let Start { size, components, progressive, coefficients } =
                    start.ok_or_else(|| bad_header("a scan comes before the image's size"))?;
                let scanned = body.first().copied().unwrap_or(0);
                return Ok(Frame {
                    size,
                    components,
                    progressive,
                    exif,
                    coefficients,
                    data: at,
                    scanned,
                });
            }
            _ => {}
        }
    }
}

/// The next marker and where its segment begins; stray bytes before it are skipped.
fn next_marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xFF)?;
        at += bytes[at..].iter().position(|&byte| byte != 0xFF)?;
        if bytes[at] != 0 {
            return Some((bytes[at], at + 1));
        }
    }
}

/// The start of a frame.
struct Start {
    size: Size,
    components: u8,
    progressive: bool,
    coefficients: u64,
}

fn start_of_frame(marker: u8, body: &[u8]) -> Result<Start, Flaw> {
    let [precision, high, low, left, right, components] =
        take(body, 0).ok_or_else(|| bad_header("the start of the frame is too short"))?;
    let (height, width) = (u16::from_be_bytes([high, low]), u16::from_be_bytes([left, right]));
    match (marker, precision, components) {
        (0xC3 | 0xC7 | 0xCB | 0xCF, ..) => Err(unsupported("lossless JPEG")),
        (0xC5 | 0xC6 | 0xCD | 0xCE, ..) => Err(unsupported("hierarchical JPEG")),
        (_, 8, 1 | 3 | 4) => {
            let size = Size { width: u32::from(width), height: u32::from(height) };
            let progressive = matches!(marker, 0xC2 | 0xCA);
            let coefficients = coefficients(size, body.get(6..).unwrap_or_default());
            Ok(Start { size, components, progressive, coefficients })
        }
        (_, 8, _) => Err(unsupported("a JPEG of other than 1, 3 or 4 components")),
        _ => Err(unsupported("a JPEG of other than 8 bits")),
    }
}
