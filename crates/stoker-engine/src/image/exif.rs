//! The orientation in an EXIF block, and nothing else of it.
//!
//! EXIF is a small TIFF; the orientation is tag 274 of its first directory. Metadata never makes an
//! image unusable: whatever is odd here means "upright", as in Pillow. (Pillow also finds
//! orientations in XMP and in ImageMagick's text chunks; browsers and torchvision do not, and so
//! neither does this.)

use super::bytes::{be16, be32, le16, le32};

const ORIENTATION: u16 = 0x0112;
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// The orientation, 1 to 8; 1 where there is none or it is invalid.
pub(super) fn orientation(exif: &[u8]) -> u8 {
    find(exif)
        .and_then(|value| u8::try_from(value).ok())
        .filter(|v| (1..=8).contains(v))
        .unwrap_or(1)
}

fn find(exif: &[u8]) -> Option<u32> {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at| if little { le16(tiff, at) } else { be16(tiff, at) };
    let long = |at| if little { le32(tiff, at) } else { be32(tiff, at) };
    let directory = long(4)? as usize;
    let entries = usize::from(short(directory)?);
    let entry = (0..entries)
        .map(|index| directory + 2 + index * 12)
        .find(|&entry| short(entry) == Some(ORIENTATION))?;
    match short(entry + 2)? {
        SHORT => short(entry + 8).map(u32::from),
        LONG => long(entry + 8),
        _ => None,
    }
}
