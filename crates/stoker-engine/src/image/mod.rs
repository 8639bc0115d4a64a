//! Encoded bytes → checked header → 8-bit RGB.
//!
//! What a file is, is read from its first bytes, never from its name, and [`inspect`] holds its
//! header against the limits before any decoder runs, so a bomb costs nothing. A refusal is a
//! [`Flaw`] that says what the bytes really are: in practice most "broken images" are error pages,
//! pointers and compressed copies. [`Decoder`] then gives the pixels that the reference gives:
//! JPEG bit for bit as Pillow (both are libjpeg-turbo), the other formats as the chosen `compat`
//! preset's own loader converts them to RGB ([`RgbRules`]). The first frame of animations counts.
//!
//! As in Pillow, a JPEG that ends before its end marker is refused, and noise in the middle of one
//! is not; unlike in Pillow, a PNG whose pixel data fail their checksum is refused.
//!
//! Each format has a file of its own, which reads the header and decodes. Unsafe code is in one more file for
//! each C library, and in the kernels that make samples and mix colours.

mod bmp;
mod bytes;
mod colours;
#[cfg(target_arch = "x86_64")]
mod colours_avx2;
#[cfg(target_arch = "x86_64")]
mod colours_avx512;
mod exif;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod gif;
#[cfg(target_arch = "x86_64")]
mod idct;
#[cfg(target_arch = "x86_64")]
mod idct_x86;
mod jpeg;
mod jpeg_ffi;
mod orient;
mod planes;
mod png;
mod rgb;
mod scratch;
mod sniff;
mod webp;
mod webp_ffi;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Bytes, Flaw};
use crate::metrics::Room;
use crate::recipe::{self, RgbRules};
use crate::sample::{Decoded, ImageFormat, ImageHeader, RgbImage, Size};

pub use scratch::scratch;

/// Most scratch memory that a decoder keeps from one image to the next, in bytes: what images take
/// that need not ask for room.
pub const KEPT: usize = 16 << 20;

/// What the header reader of a format finds.
struct Head<'a> {
    size: Size,
    /// The EXIF block, as TIFF.
    exif: Option<&'a [u8]>,
    /// Passes over the image.
    scans: u32,
}

/// Reads the header only, and refuses what is not an image or exceeds the limits.
pub fn inspect(bytes: &[u8], limits: &recipe::Image, rules: RgbRules) -> Result<ImageHeader, Flaw> {
    let length = bytes.len() as u64;
    if length > limits.max_bytes {
        let most = Bytes(limits.max_bytes);
        let reason = format!("the file has {}, and the limit is {most}", Bytes(length));
        return Err(flaw("too-many-bytes", reason).hint("raise image.max-bytes to accept it"));
    }
    let format = sniff::format(bytes)?;
    let head = match format {
        ImageFormat::Jpeg => jpeg::head(bytes),
        ImageFormat::Png => png::head(bytes),
        ImageFormat::WebP => webp::head(bytes),
        ImageFormat::Gif => gif::head(bytes),
        ImageFormat::Bmp => bmp::head(bytes),
    }?;
    check(&head, limits)?;
    let exif = head.exif.filter(|_| rules.exif);
    Ok(ImageHeader { format, stored: head.size, orientation: exif.map_or(1, exif::orientation) })
}

/// Bytes from the start of a file that nearly always hold its header: metadata with a preview of a
/// camera's photo come first and have 10 to 20 KiB.
pub const BEGINNING: usize = 32 << 10;

/// The same of the first bytes of a file that goes on, as far as they tell: `None` if they don't, or
/// if what they tell is to be refused. What stands further back is not known then: whether the file
/// is whole, how many scans it has, and the orientation, so that the sides may be swapped.
pub fn inspect_beginning(bytes: &[u8], limits: &recipe::Image) -> Option<ImageHeader> {
    let format = sniff::format(bytes).ok()?;
    let size = match format {
        ImageFormat::Jpeg => jpeg::size(bytes),
        ImageFormat::Png => png::size(bytes),
        ImageFormat::WebP => webp::size(bytes),
        ImageFormat::Gif => gif::head(bytes).map(|head| head.size),
        ImageFormat::Bmp => bmp::head(bytes).map(|head| head.size),
    }
    .ok()?;
    check(&Head { size, exif: None, scans: 1 }, limits).ok()?;
    Some(ImageHeader { format, stored: size, orientation: 1 })
}

fn check(head: &Head, limits: &recipe::Image) -> Result<(), Flaw> {
    let Size { width, height } = head.size;
    if width == 0 || height == 0 {
        return Err(flaw("bad-header", format!("the image is {width} x {height} pixels")));
    }
    if width.max(height) > limits.max_side {
        let most = limits.max_side;
        let reason =
            format!("the image is {width} x {height} pixels, and the longest side is {most}");
        return Err(flaw("side-too-long", reason).hint("raise image.max-side to accept it"));
    }
    if head.size.pixels() > limits.max_pixels {
        let most = limits.max_pixels;
        let reason =
            format!("the image is {width} x {height} pixels, and the limit is {most} pixels");
        return Err(flaw("too-many-pixels", reason).hint("raise image.max-pixels to accept it"));
    }
    if head.scans > limits.max_scans { Err(too_many_scans(limits.max_scans)) } else { Ok(()) }
}

/// Decodes, with reused scratch memory; one per worker thread.
#[derive(Debug, Default)]
pub struct Decoder {
    image: RgbImage,
    /// Samples before they are RGB.
    raw: Vec<u8>,
    /// Pixels before they are upright.
    stored: Vec<u8>,
    jpeg: jpeg::Memory,
}

impl Decoder {
    /// Opens an image whose header was inspected. A JPEG that lies upright is decoded while its rows
    /// are read; all else, now. `seen` is the size that it will be resized to: where the recipe allows
    /// an approximation and the image is at least twice as large, it comes out smaller.
    pub fn open<'a>(
        &'a mut self,
        bytes: &'a [u8],
        header: &ImageHeader,
        seen: Size,
        limits: &recipe::Image,
        rules: RgbRules,
    ) -> Result<Decoded<'a>, Flaw> {
        let shrink = shrink(header, seen, limits);
        let is_jpeg = header.format == ImageFormat::Jpeg;
        if is_jpeg && header.orientation == 1 && !jpeg::is_cmyk(bytes)? {
            let ask = ask(header, shrink, limits);
            return Ok(Decoded::Rows(Box::new(jpeg::Rows::open(&mut self.jpeg, bytes, ask)?)));
        }
        self.whole(bytes, header, shrink, limits, rules).map(Decoded::Whole)
    }

    /// Decodes a whole image whose header was inspected, in its own size.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &ImageHeader,
        limits: &recipe::Image,
        rules: RgbRules,
    ) -> Result<&RgbImage, Flaw> {
        self.whole(bytes, header, 1, limits, rules)
    }

    /// The same, but as [`Self::open`] has it for an image that will be `seen` in that size.
    pub fn decode_for(
        &mut self,
        bytes: &[u8],
        header: &ImageHeader,
        seen: Size,
        limits: &recipe::Image,
        rules: RgbRules,
    ) -> Result<&RgbImage, Flaw> {
        self.whole(bytes, header, shrink(header, seen, limits), limits, rules)
    }

    fn whole(
        &mut self,
        bytes: &[u8],
        header: &ImageHeader,
        shrink: u32,
        limits: &recipe::Image,
        rules: RgbRules,
    ) -> Result<&RgbImage, Flaw> {
        let Self { image, raw, stored, jpeg } = self;
        let upright = header.orientation == 1;
        let ask = ask(header, shrink, limits);
        let pixels = if upright { &mut image.pixels } else { &mut *stored };
        resize(pixels, ask.size.pixels() * 3)?;
        guard(|| match header.format {
            ImageFormat::Jpeg => jpeg::decode(jpeg, bytes, ask, raw, pixels),
            ImageFormat::Png => png::decode(bytes, header.stored, rules, raw, pixels),
            ImageFormat::WebP => webp::decode(bytes, header.stored, rules, raw, pixels),
            ImageFormat::Gif => gif::decode(bytes, header.stored, rules, pixels),
            ImageFormat::Bmp => bmp::decode(bytes, header.stored, rules, raw, pixels),
        })?;
        if !upright {
            resize(&mut image.pixels, ask.size.pixels() * 3)?;
            orient::turn(header.orientation, ask.size, stored, &mut image.pixels);
        }
        let Size { width, height } = ImageHeader { stored: ask.size, ..*header }.size();
        (image.width, image.height) = (width as usize, height as usize);
        Ok(image)
    }
}

impl Decoder {
    /// The image that was decoded last, to be kept.
    pub fn take(&mut self) -> RgbImage {
        std::mem::take(&mut self.image)
    }

    /// Memory for the images to come.
    pub fn give_back(&mut self, image: RgbImage) {
        if image.pixels.capacity() > self.image.pixels.capacity() {
            self.image = image;
            self.tidy();
        }
    }

    /// Lets go of what a large image took: it asked for room, and gives that back.
    pub fn tidy(&mut self) {
        let Self { image, raw, stored, .. } = self;
        if image.pixels.capacity() + raw.capacity() + stored.capacity() > KEPT {
            (*image, *raw, *stored) = Default::default();
        }
    }
}

/// By how much libjpeg may shrink an image while it decodes it.
fn shrink(header: &ImageHeader, seen: Size, limits: &recipe::Image) -> u32 {
    let size = header.size();
    let fits = |by: &u32| size.width >= by * seen.width && size.height >= by * seen.height;
    let may = limits.approximate && header.format == ImageFormat::Jpeg;
    [8, 4, 2].into_iter().find(|by| may && fits(by)).unwrap_or(1)
}

fn ask(header: &ImageHeader, shrink: u32, limits: &recipe::Image) -> jpeg::Ask {
    let Size { width, height } = header.stored;
    let size = Size { width: width.div_ceil(shrink), height: height.div_ceil(shrink) };
    jpeg::Ask { size, shrink, max_scans: limits.max_scans }
}

/// Runs a decoder; a panic in it is one bad image, not the end of the run.
fn guard(decode: impl FnOnce() -> Result<(), Flaw>) -> Result<(), Flaw> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        Err(flaw("decoder-panic", "the decoder panicked on this file")
            .hint("please report the file"))
    })
}

/// Gives the buffer this length; its content is arbitrary.
fn resize(buffer: &mut Vec<u8>, length: u64) -> Result<(), Flaw> {
    let length = usize::try_from(length).map_err(|_| out_of_memory())?;
    buffer.truncate(length);
    buffer.try_reserve_exact(length - buffer.len()).map_err(|_| out_of_memory())?;
    buffer.resize(length, 0);
    Ok(())
}

fn flaw(code: &'static str, reason: impl Into<String>) -> Flaw {
    Flaw::new(Room::Image, code, reason)
}

fn bad_header(what: &str) -> Flaw {
    flaw("bad-header", format!("the header is damaged: {what}"))
}

fn truncated() -> Flaw {
    flaw("truncated", "the file ends before the image does")
        .hint("the upload or download was cut short; store the file again")
}

fn corrupt(what: impl std::fmt::Display) -> Flaw {
    flaw("corrupt", format!("the image data is damaged: {what}"))
}

fn unsupported(what: &str) -> Flaw {
    flaw("unsupported-format", format!("{what} is not supported"))
        .hint("convert it to JPEG, PNG or WebP")
}

fn too_many_scans(most: u32) -> Flaw {
    flaw("too-many-scans", format!("the JPEG has more than {most} scans"))
        .hint("raise image.max-scans to accept it")
}

fn out_of_memory() -> Flaw {
    flaw("out-of-memory", "there is no memory for the pixels").hint("lower image.max-pixels")
}
