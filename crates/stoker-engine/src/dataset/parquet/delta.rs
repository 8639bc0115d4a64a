//! Pages of lengths, and what they become, before their reader believes them.
//!
//! Two encodings of text begin with numbers: how many values there are, for which a reader reserves
//! memory; how long each is; and, in `DELTA_BYTE_ARRAY`, how many bytes it shares with the one before,
//! which are copied for each. So a few bytes may claim any number of values, and a page of a megabyte
//! unfold to a terabyte. Here such a page is unpacked once more, by the library, and its lengths are
//! added up.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, buf};
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};

use super::page::Chunk;

/// The numbers of these encodings in a header.
pub(super) const ENCODINGS: [i32; 2] = [6, 7];

/// Bytes that the values of a page become where they share some in the page; `None` if its lengths are
/// none. What is wrong with the page otherwise is for its reader to say.
pub(super) fn unfolded(head: Bytes, body: Bytes, chunk: &Chunk) -> Option<u64> {
    let Ok(Some(page)) = unpacked(head, body, chunk.codec) else { return Some(0) };
    let (encoding, values) = (page.encoding(), u64::from(page.num_values()));
    match encoding {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            Lengths::new(content(&page, chunk.levels)?, values).map(|_| 0)
        }
        Encoding::DELTA_BYTE_ARRAY => all(content(&page, chunk.levels)?, values),
        _ => Some(0),
    }
}

/// A page by itself.
struct Alone {
    head: Bytes,
    body: Bytes,
}

impl Length for Alone {
    fn len(&self) -> u64 {
        (self.head.len() + self.body.len()) as u64
    }
}

impl ChunkReader for Alone {
    type T = buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.head.slice(self.head.len().min(start as usize)..).reader())
    }

    fn get_bytes(&self, _: u64, length: usize) -> Result<Bytes, ParquetError> {
        let has = length <= self.body.len();
        has.then(|| self.body.slice(..length)).ok_or_else(|| io::Error::other("it ends").into())
    }
}

fn unpacked(head: Bytes, body: Bytes, codec: Compression) -> Result<Option<Page>, ParquetError> {
    let page = Alone { head, body };
    let kind = Type::primitive_type_builder("text", Physical::BYTE_ARRAY).build()?;
    let column = ColumnDescriptor::new(Arc::new(kind), 0, 0, ColumnPath::new(Vec::new()));
    let chunk = ColumnChunkMetaData::builder(Arc::new(column))
        .set_compression(codec)
        .set_data_page_offset(0)
        .set_total_compressed_size(page.len() as i64)
        .build()?;
    SerializedPageReader::new(Arc::new(page), &chunk, 0, None)?.get_next_page()
}

/// What stands behind the levels: of repetition, then of definition, where a column has them.
fn content(page: &Page, levels: [bool; 2]) -> Option<&[u8]> {
    match page {
        Page::DataPage { buf, def_level_encoding, rep_level_encoding, .. } => {
            let mut rest = &buf[..];
            for (has, encoding) in levels.into_iter().zip([rep_level_encoding, def_level_encoding])
            {
                if has {
                    // Other levels are older than these encodings.
                    let (size, behind) = rest.split_first_chunk()?;
                    let size = u32::from_le_bytes(*size) as usize;
                    rest = behind.get(size..).filter(|_| *encoding == Encoding::RLE)?;
                }
            }
            Some(rest)
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get(def_levels_byte_len.checked_add(*rep_levels_byte_len)? as usize..)
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// All bytes of values that begin with some of the one before.
fn all(content: &[u8], values: u64) -> Option<u64> {
    let mut shared = Lengths::new(content, values)?;
    let mut end = shared.clone();
    (0..shared.count).try_for_each(|_| end.next().map(drop))?;
    let mut own = Lengths::new(end.rest, values)?;
    let (mut last, mut all) = (0, 0_u64);
    for _ in 0..shared.count.max(own.count) {
        let [shared, own] = [shared.next()?, own.next()?].map(u64::try_from);
        last = shared.ok().filter(|shared| *shared <= last)? + own.ok()?;
        all = all.checked_add(last)?;
    }
    Some(all)
}

/// Numbers in `DELTA_BINARY_PACKED`, as the library reads them.
#[derive(Clone)]
struct Lengths<'a> {
    rest: &'a [u8],
    count: u64,
    left: u64,
    first: Option<i32>,
    last: i32,
    /// Parts of a block, and values of each.
    parts: usize,
    part: usize,
    /// What is added to each value of a block.
    least: i32,
    /// Bits of each value, for the parts that come.
    widths: &'a [u8],
    width: usize,
    /// The values of the part that are left: so many, from that bit on.
    packed: &'a [u8],
    in_part: usize,
    bit: usize,
}

impl<'a> Lengths<'a> {
    /// Of at most so many values.
    fn new(bytes: &'a [u8], most: u64) -> Option<Self> {
        let mut rest = bytes;
        let block = usize::try_from(number(&mut rest)?).ok()?;
        let parts = usize::try_from(number(&mut rest)?).ok().filter(|parts| *parts > 0)?;
        let count = number(&mut rest).filter(|count| *count <= most)?;
        let first = Some(signed(&mut rest)?);
        let part = block / parts;
        if block % 128 != 0 || block % parts != 0 || part % 32 != 0 {
            return None;
        }
        let (width, in_part, bit) = Default::default();
        let (widths, packed): (&[u8], &[u8]) = (&[], &[]);
        let left = count;
        Some(Self {
            rest,
            count,
            left,
            first,
            last: 0,
            parts,
            part,
            least: 0,
            widths,
            width,
            packed,
            in_part,
            bit,
        })
    }

    fn next(&mut self) -> Option<i32> {
        self.left = self.left.checked_sub(1)?;
        if let Some(first) = self.first.take() {
            self.last = first;
            return Some(first);
        }
        if self.in_part == 0 {
            self.begin_part()?;
        }
        let bytes = self.packed[self.bit / 8..].iter().take(5).rev();
        let bits = bytes.fold(0, |bits, byte| bits << 8 | u64::from(*byte)) >> (self.bit % 8);
        let delta = bits & ((1 << self.width) - 1);
        (self.bit, self.in_part) = (self.bit + self.width, self.in_part - 1);
        self.last = self.last.wrapping_add(self.least).wrapping_add(delta as i32);
        Some(self.last)
    }

    fn begin_part(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            self.least = signed(&mut self.rest)?;
            (self.widths, self.rest) = self.rest.split_at_checked(self.parts)?;
        }
        let (width, widths) = self.widths.split_first().filter(|(width, _)| **width <= 32)?;
        (self.width, self.widths) = (usize::from(*width), widths);
        let bytes = self.part.checked_mul(self.width)? / 8;
        (self.packed, self.rest) = self.rest.split_at_checked(bytes)?;
        // A part without values would be followed by the next one, and that by others.
        (self.in_part, self.bit) = (self.part, 0);
        (self.part > 0).then_some(())
    }
}

/// A number in as many bytes as it takes, ten at most.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let length = rest.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (bytes, behind) = rest.split_at(length);
    *rest = behind;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7F)))
}

fn signed(rest: &mut &[u8]) -> Option<i32> {
    let number = number(rest)?;
    i32::try_from((number >> 1) as i64 ^ -((number & 1) as i64)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few bytes that claim a billion values, all of them alike.
    #[test]
    fn values_that_no_page_tells_of_are_not_believed() {
        let claims = b"\x80\x80\x80\x80\x10\x01\x80\x80\x80\x80\x04\0\0\0";
        let count = Lengths::new(claims, u64::MAX).unwrap().count;
        assert_eq!(count, 1 << 30);
        assert!(Lengths::new(claims, count - 1).is_none());
    }

    #[test]
    fn lengths_that_end_early_or_have_no_parts_are_none() {
        let sound = b"\x80\x01\x04\x03\x02\x02\x01\0\0\0\0\0\0\0";
        let read = |bytes: &[u8]| {
            let mut lengths = Lengths::new(bytes, 3)?;
            (0..3).map(|_| lengths.next()).collect::<Option<Vec<_>>>()
        };
        assert_eq!(read(sound), Some(vec![1, 2, 3]));
        assert_eq!(read(&[&sound[..10], b"\x05\0\0\0"].concat()), Some(vec![1, 3, 4]));
        for end in 0..14 {
            assert_eq!(read(&sound[..end]), None, "{end}");
        }
        assert_eq!(read(b"\0\x01\x03\x02\x02\0\0"), None, "blocks without values");
        assert_eq!(read(b"\x80\x01\0\x03\x02\x02\0\0"), None, "blocks without parts");
        assert_eq!(read(b"\x80\x01\x01\x03\x02\x02\x21\0\0\0"), None, "33 bits");
    }
}
