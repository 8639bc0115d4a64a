//! PNG, by the `png` crate.
//!
//! Text and colour profiles are never inflated. Checksums of the pixel data count, those of other
//! chunks do not; a missing end chunk does not either, once all rows are there. 16-bit samples keep
//! their high byte, but for greyscale under the rule that clips.
//!
//! Transparent colours are compared at the file's own bit depth, as the specification has it.
//! (Pillow compares them after scaling and so misses some in 2-bit, 4-bit and 16-bit files.)

use std::io::{Cursor, ErrorKind};

use png::{
    BitDepth, ColorType, DecodeOptions, DecodingError, InterlaceInfo, Reader, Transformations,
};

use super::bytes::{be32, take};
use super::rgb::{Layout, composites, convert};
use super::{Head, bad_header, corrupt, resize, truncated};
use crate::error::Flaw;
use crate::recipe::{RgbRules, SixteenBit};
use crate::sample::Size;

const SIGNATURE: usize = 8;
/// Length, type and checksum around the data of a chunk.
const CHUNK: usize = 12;

pub(super) fn head(bytes: &[u8]) -> Result<Head<'_>, Flaw> {
    Ok(Head { size: size(bytes)?, exif: walk(bytes)?, scans: 1 })
}

/// The size alone, of a file that may go on.
pub(super) fn size(bytes: &[u8]) -> Result<Size, Flaw> {
    let [_, _, _, 13, b'I', b'H', b'D', b'R'] = take(bytes, SIGNATURE).ok_or_else(truncated)?
    else {
        return Err(bad_header("it does not begin with IHDR"));
    };
    let [depth, colour, ..] = take::<5>(bytes, SIGNATURE + 16).ok_or_else(truncated)?;
    if !matches!(
        (colour, depth),
        (0, 1 | 2 | 4 | 8 | 16) | (3, 1 | 2 | 4 | 8) | (2 | 4 | 6, 8 | 16)
    ) {
        return Err(bad_header("there is no such colour type and bit depth"));
    }
    let (width, height) = (be32(bytes, SIGNATURE + 8), be32(bytes, SIGNATURE + 12));
    let size = width.zip(height).map(|(width, height)| Size { width, height });
    size.ok_or_else(truncated)
}

/// Bytes for each pixel before it is RGB; none where it comes as that.
pub(super) fn scratch(bytes: &[u8]) -> usize {
    let colour = bytes.get(SIGNATURE + 17);
    let mut at = SIGNATURE;
    while let (Some(length), Some(kind)) = (be32(bytes, at), take(bytes, at + 4)) {
        match &kind {
            b"tRNS" => return Layout::Rgba.bytes(),
            b"IDAT" => break,
            _ => at += CHUNK + length as usize,
        }
    }
    match colour {
        Some(2 | 3) => 0,
        Some(0) => Layout::Grey16.bytes(),
        _ => Layout::Rgba.bytes(),
    }
}

/// Finds the EXIF chunk, and makes sure that the pixel data are there.
fn walk(bytes: &[u8]) -> Result<Option<&[u8]>, Flaw> {
    let (mut exif, mut pixels) = (None, false);
    let mut at = SIGNATURE;
    while let (Some(length), Some(kind)) = (be32(bytes, at), take(bytes, at + 4)) {
        let data = bytes.get(at + 8..at + 8 + length as usize);
        match &kind {
            // One that is announced and not even begun may be too many: the decoder will tell.
            b"IDAT" if data.is_none() && bytes.len() > at + 8 => return Err(truncated()),
            b"IDAT" => pixels = true,
            b"eXIf" if exif.is_none() => exif = data,
            b"IEND" => break,
            _ => {}
        }
        at += CHUNK + length as usize;
    }
    let ended = at < bytes.len();
    match (pixels, ended) {
        (true, _) => Ok(exif),
        (false, true) => Err(corrupt("it has no pixel data")),
        (false, false) => Err(truncated()),
    }
}

pub(super) fn decode(
    bytes: &[u8],
    size: Size,
    rules: RgbRules,
    raw: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), Flaw> {
    let mut options = DecodeOptions::default();
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(bytes), options);
    let info = decoder.read_header_info().map_err(refuse)?;
    let (colour, deep) = (info.color_type, info.bit_depth == BitDepth::Sixteen);
    let clip = deep && colour == ColorType::Grayscale && rules.sixteen_bit == SixteenBit::Clip;
    let strip = if clip { Transformations::IDENTITY } else { Transformations::STRIP_16 };
    decoder.set_transformations(Transformations::EXPAND | strip);
    let mut reader = decoder.read_info().map_err(refuse)?;
    if reader.info().size() != (size.width, size.height) {
        return Err(corrupt("the header contradicts itself"));
    }
    let layout = match reader.output_color_type() {
        (ColorType::Rgb, _) => return rows(&mut reader, out),
        (ColorType::Rgba, _) => Layout::Rgba,
        (ColorType::Grayscale, BitDepth::Sixteen) => Layout::Grey16,
        (ColorType::GrayscaleAlpha, BitDepth::Sixteen) => Layout::Grey16Alpha,
        (ColorType::GrayscaleAlpha, _) => Layout::GreyAlpha,
        _ => Layout::Grey,
    };
    // Pillow reads 16-bit grey with alpha as RGBA.
    let rgba = colour == ColorType::Rgba || (deep && colour == ColorType::GrayscaleAlpha);
    resize(raw, size.pixels() * layout.bytes() as u64)?;
    rows(&mut reader, raw)?;
    convert(layout, composites(rules, rgba), rules.sixteen_bit, raw, out);
    Ok(())
}

/// Reads all rows, which `out` has the size of.
fn rows(reader: &mut Reader<Cursor<&[u8]>>, out: &mut [u8]) -> Result<(), Flaw> {
    let (width, height) = reader.info().size();
    let (colour, depth) = reader.output_color_type();
    let pixel = colour.samples() * depth as usize / 8;
    let line = width as usize * pixel;
    let mut passed = vec![0; if reader.info().interlaced { line } else { 0 }];
    let mut next = 0;
    loop {
        let row = if passed.is_empty() {
            let end = out.len().min(next + line);
            reader.read_row(&mut out[next..end])
        } else {
            reader.read_row(&mut passed)
        };
        match row {
            Ok(Some(InterlaceInfo::Adam7(info))) => {
                png::expand_interlaced_row(out, line, &passed, &info, (pixel * 8) as u8);
            }
            Ok(Some(InterlaceInfo::Null(_))) => next += line,
            Ok(None) => return Ok(()),
            Err(DecodingError::IoError(error))
                if error.kind() == ErrorKind::UnexpectedEof && next == line * height as usize =>
            {
                return Ok(());
            }
            Err(error) => return Err(refuse(error)),
        }
    }
}

fn refuse(error: DecodingError) -> Flaw {
    match error {
        DecodingError::IoError(_) => truncated(),
        error => corrupt(error),
    }
}
