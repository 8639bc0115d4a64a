//! What the bytes of a column say.

use bytes::Bytes;
use serde_json::Value;

use super::Column;
use crate::dataset::chat::{text, value as json};
use crate::dataset::{flaw, quoted};
use crate::error::Flaw;

/// The value of a column that is text or JSON.
pub(in crate::dataset) fn value(column: &Column, bytes: &[u8]) -> Result<Value, Flaw> {
    let what = format!("the column {}", quoted(&column.name));
    match column.encoding.as_str() {
        "json" => json(bytes, &what),
        _ => Ok(text(bytes, &what)?.into()),
    }
}

/// The images of a list: their number, the size of each, and one behind the other. `before` are the
/// bytes in front of the number.
pub(in crate::dataset) fn images(bytes: &Bytes, before: usize) -> Result<Vec<Bytes>, Flaw> {
    let number = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("it has 4 bytes")) as usize)
    };
    let read = || {
        let count = number(before)?;
        let sizes = before + 4;
        let mut begin = sizes.checked_add(count.checked_mul(4)?)?;
        let mut images = Vec::new();
        for at in 0..count {
            let end = begin.checked_add(number(sizes + at * 4)?)?;
            images.push((end <= bytes.len()).then(|| bytes.slice(begin..end))?);
            begin = end;
        }
        (begin == bytes.len()).then_some(images)
    };
    read().ok_or_else(|| flaw("bad-image", "a list of images has other sizes than it says"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(before: usize, count: u32, sizes: &[u32], content: &[u8]) -> Bytes {
        let mut bytes = vec![0; before];
        bytes.extend(count.to_le_bytes());
        for size in sizes {
            bytes.extend(size.to_le_bytes());
        }
        bytes.extend(content);
        bytes.into()
    }

    #[test]
    fn lists_of_images_are_read_exactly_or_not_at_all() {
        for before in [0, 4] {
            let two = images(&list(before, 2, &[1, 3], b"abcd"), before).unwrap();
            assert_eq!(two, [Bytes::from_static(b"a"), Bytes::from_static(b"bcd")]);
            assert!(images(&list(before, 0, &[], b""), before).unwrap().is_empty());
            for bad in [
                list(before, 2, &[1, 4], b"abcd"),
                list(before, 2, &[1, 2], b"abcd"),
                list(before, u32::MAX, &[1], b"a"),
                list(before, 1, &[u32::MAX], b"a"),
                list(before, 1, &[], b""),
                Bytes::from_static(b"abc"),
            ] {
                assert_eq!(images(&bad, before).unwrap_err().code, "bad-image");
            }
        }
    }
}
