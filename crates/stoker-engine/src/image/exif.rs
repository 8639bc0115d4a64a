//! The orientation in an EXIF block, and nothing else of it.
//!
//! EXIF is a small TIFF; the orientation is tag 274 of its first directory. Metadata never makes an
//! image unusable: whatever is odd here means "upright", as in Pillow.

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
    let (short, long): (fn(&[u8], usize) -> Option<u16>, fn(&[u8], usize) -> Option<u32>) =
        match tiff.get(..4)? {
            b"II*\0" => (le16, le32),
            b"MM\0*" => (be16, be32),
            _ => return None,
        };
    let directory = long(tiff, 4)? as usize;
    let entries = usize::from(short(tiff, directory)?);
    let entry = (0..entries)
        .map(|index| directory + 2 + index * 12)
        .find(|&entry| short(tiff, entry) == Some(ORIENTATION))?;
    match short(tiff, entry + 2)? {
        SHORT => short(tiff, entry + 8).map(u32::from),
        LONG => long(tiff, entry + 8),
        _ => None,
    }
}
