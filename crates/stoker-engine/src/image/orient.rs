//! Turns stored pixels upright: what Pillow's `ImageOps.exif_transpose` does.

use crate::sample::Size;

/// Pixels of a side of the tiles that a turn by 90 degrees goes through, so that both sides of the
/// copy stay in the cache.
const TILE: usize = 32;

/// Copies `stored` (RGB of that size) to `upright`, as EXIF orientation 2 to 8 asks for.
pub(super) fn turn(orientation: u8, size: Size, stored: &[u8], upright: &mut [u8]) {
    let (width, height) = (size.width as isize, size.height as isize);
    let (top_right, bottom_left) = (width - 1, (height - 1) * width);
    let bottom_right = bottom_left + top_right;
    // Where the upright image's first pixel is stored, and the steps from there to its right and
    // lower neighbours.
    let (first, right, down) = match orientation {
        2 => (top_right, -1, width),
        3 => (bottom_right, -1, -width),
        4 => (bottom_left, 1, -width),
        5 => (0, width, 1),
        6 => (bottom_left, -width, 1),
        7 => (bottom_right, -width, -1),
        8 => (top_right, width, -1),
        _ => (0, 1, width),
    };
    let turned = orientation >= 5;
    let (columns, rows) = if turned { (height, width) } else { (width, height) };
    let (columns, rows) = (columns as usize, rows as usize);
    let source = stored.as_chunks::<3>().0;
    let target = upright.as_chunks_mut::<3>().0;
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for y in top..rows.min(top + TILE) {
                let end = columns.min(left + TILE);
                let row = &mut target[y * columns + left..y * columns + end];
                let mut from = first + left as isize * right + y as isize * down;
                for pixel in row {
                    *pixel = source[from as usize];
                    from += right;
                }
            }
        }
    }
}
