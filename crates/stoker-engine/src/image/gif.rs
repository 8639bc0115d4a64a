//! GIF, by the `gif` crate: the first frame on its canvas.
//!
//! A first frame that reaches over the canvas makes it larger, and a file without any colour table
//! is grey, both as in Pillow. Around the frame is what is transparent, or colour 0 where nothing
//! is; where transparency is dropped, the background colour shows, as in torchvision (giflib), but
//! for the rule of qwen-vl-utils (Pillow's `convert`), under which the hidden colour appears.

use std::io::{Cursor, Read};

use gif::{DecodeOptions, DecodingError, Frame, MemoryLimit};

use super::bytes::le16;
use super::{Head, bad_header, corrupt, truncated};
use crate::error::Flaw;
use crate::recipe::{Alpha, RgbRules};
use crate::sample::Size;

/// Signature and screen descriptor; a global colour table may follow.
const SCREEN: usize = 13;

/// What is found before the first frame's data.
struct Start {
    size: Size,
    has_colours: bool,
}

pub(super) fn head(bytes: &[u8]) -> Result<Head<'_>, Flaw> {
    Ok(Head { size: start(bytes)?.size, exif: None, scans: 1 })
}

fn start(bytes: &[u8]) -> Result<Start, Flaw> {
    let field = |at| le16(bytes, at).map(u32::from).ok_or_else(truncated);
    let byte = |at| bytes.get(at).copied().ok_or_else(truncated);
    let screen = Size { width: field(6)?, height: field(8)? };
    let flags = byte(10)?;
    let mut at = SCREEN + colour_table(flags);
    loop {
        match byte(at)? {
            b'!' => at = after_blocks(bytes, at + 2)?,
            b',' => break,
            b';' => return Err(corrupt("it has no frame")),
            _ => return Err(bad_header("there is no such block")),
        }
    }
    let right = field(at + 1)? + field(at + 5)?;
    let bottom = field(at + 3)? + field(at + 7)?;
    let size = Size { width: screen.width.max(right), height: screen.height.max(bottom) };
    let empty = field(at + 5)? == 0 || field(at + 7)? == 0;
    if empty || screen.pixels() == 0 {
        return Err(bad_header("the canvas or its first frame has no pixels"));
    }
    Ok(Start { size, has_colours: flags & 0x80 != 0 || byte(at + 9)? & 0x80 != 0 })
}

fn colour_table(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

fn after_blocks(bytes: &[u8], mut at: usize) -> Result<usize, Flaw> {
    loop {
        let length = *bytes.get(at).ok_or_else(truncated)?;
        at += 1 + usize::from(length);
        if length == 0 {
            return Ok(at);
        }
    }
}

pub(super) fn decode(
    bytes: &[u8],
    size: Size,
    rules: RgbRules,
    out: &mut [u8],
) -> Result<(), Flaw> {
    let start = start(bytes)?;
    if start.size != size {
        return Err(corrupt("the header contradicts itself"));
    }
    let table = if start.has_colours { Vec::new() } else { grey_table() };
    let (screen, rest) = bytes.split_at(SCREEN);
    let mut screen = screen.to_vec();
    if !start.has_colours {
        screen[10] |= 0x87;
    }
    let mut options = DecodeOptions::new();
    options.set_memory_limit(MemoryLimit::Unlimited); // `inspect` limited the pixels
    let source = Cursor::new(screen).chain(Cursor::new(table)).chain(rest);
    let mut decoder = options.read_info(source).map_err(refuse)?;
    let background = decoder.bg_color();
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let frame = decoder.read_next_frame().map_err(refuse)?;
    let frame = frame.ok_or_else(|| corrupt("it has no frame"))?;
    let colours = Colours { frame, global: global.as_deref(), background, alpha: rules.alpha };
    paint(frame, &colours, size, out)
}

/// Black to white, for files without colours.
fn grey_table() -> Vec<u8> {
    (0..=u8::MAX).flat_map(|value| [value; 3]).collect()
}

/// What the indices of the first frame stand for.
struct Colours<'a> {
    frame: &'a Frame<'a>,
    global: Option<&'a [u8]>,
    background: Option<usize>,
    alpha: Alpha,
}

impl Colours<'_> {
    fn of(&self, index: u8) -> [u8; 3] {
        if self.frame.transparent == Some(index) {
            match self.alpha {
                Alpha::White => return [255; 3],
                Alpha::Drop => return self.behind(),
                Alpha::WhiteIfRgba => {}
            }
        }
        lookup(self.frame.palette.as_deref().or(self.global), usize::from(index))
    }

    /// Around the frame.
    fn around(&self) -> [u8; 3] {
        match (self.alpha, self.frame.transparent) {
            (Alpha::Drop, _) => self.behind(),
            (_, index) => self.of(index.unwrap_or(0)),
        }
    }

    fn behind(&self) -> [u8; 3] {
        lookup(self.global, self.background.unwrap_or(0))
    }
}

fn lookup(table: Option<&[u8]>, index: usize) -> [u8; 3] {
    table.and_then(|table| table.as_chunks().0.get(index)).copied().unwrap_or([0; 3])
}

fn paint(frame: &Frame, colours: &Colours, size: Size, out: &mut [u8]) -> Result<(), Flaw> {
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (width, height) = (usize::from(frame.width), usize::from(frame.height));
    let stride = size.width as usize;
    if left + width > stride || top + height > size.height as usize {
        return Err(corrupt("the header contradicts itself"));
    }
    if frame.buffer.len() < width * height {
        return Err(truncated());
    }
    let out = out.as_chunks_mut().0;
    if (width, height) != (stride, size.height as usize) {
        out.fill(colours.around());
    }
    let table: Vec<[u8; 3]> = (0..=u8::MAX).map(|index| colours.of(index)).collect();
    for (row, indices) in frame.buffer.chunks_exact(width).enumerate() {
        let first = (top + row) * stride + left;
        for (pixel, &index) in out[first..first + width].iter_mut().zip(indices) {
            *pixel = table[usize::from(index)];
        }
    }
    Ok(())
}

fn refuse(error: DecodingError) -> Flaw {
    match error {
        DecodingError::UnexpectedEof | DecodingError::Io(_) => truncated(),
        error => corrupt(error),
    }
}
