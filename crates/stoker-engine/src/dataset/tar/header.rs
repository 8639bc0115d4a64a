//! One header of a tar archive: 512 bytes that say what follows.
//!
//! Read are v7, ustar and GNU headers. A header counts only if its checksum is right; numbers are
//! octal text or, where that is too short, base 256 (GNU). What a number claims is not believed here
//! and nothing is reserved on its word: the walker knows where the archive ends.

pub(super) const BLOCK: usize = 512;

/// What a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file with content.
    File,
    /// The name of the next member (GNU).
    LongName,
    /// The target of the next link (GNU).
    LongLink,
    /// Records about the next member (pax).
    Records,
    /// Records about all members from here on (pax).
    GlobalRecords,
    /// A file with holes (GNU).
    Sparse,
    /// A folder, link, device or anything else that has no content of its own. Links are never
    /// followed.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) name: Vec<u8>,
    /// Bytes that follow.
    pub(super) size: u64,
}

/// Reads a header that is not all zeros; why not, where it is none.
pub(super) fn read(block: &[u8; BLOCK]) -> Result<Header, String> {
    let told = number(&block[148..156]).ok_or("its checksum is no number")?;
    if !checksums(block).contains(&told) {
        return Err("its checksum is wrong".to_owned());
    }
    let posix = &block[257..263] == b"ustar\0";
    let mut name = text(&block[..100]).to_vec();
    let prefix = text(&block[345..500]);
    if posix && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let kind = match block[156] {
        // Folders too, before ustar: files without content whose name ends with a slash.
        0 | b'0' | b'7' => Kind::File,
        b'L' => Kind::LongName,
        b'K' => Kind::LongLink,
        b'x' | b'X' => Kind::Records,
        b'g' => Kind::GlobalRecords,
        b'S' => Kind::Sparse,
        _ => Kind::Other,
    };
    // Links and devices carry no content, whatever their size field says (hard links repeat it).
    let bare = matches!(block[156], b'1'..=b'6');
    let size = if bare { Some(0) } else { number(&block[124..136]) };
    let size = size.ok_or("its size is negative or no number")?;
    Ok(Header { kind, name, size })
}

/// The sum of all bytes, with blanks in place of the checksum; and what some old writers made of
/// it, the sum of signed bytes.
fn checksums(block: &[u8; BLOCK]) -> [u64; 2] {
    let bytes = block.iter().enumerate();
    let blanked = bytes.map(|(at, byte)| if (148..156).contains(&at) { b' ' } else { *byte });
    let sums = blanked.fold((0_u64, 0_i64), |(unsigned, signed), byte| {
        (unsigned + u64::from(byte), signed + i64::from(byte as i8))
    });
    [sums.0, sums.1 as u64]
}

/// A number that is not negative and fits into 63 bits.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // The second bit is the sign.
        let mut bytes = std::iter::once(first & 0x7f).chain(rest.iter().copied());
        return bytes
            .try_fold(0_u64, |number, byte| {
                (number >> 55 == 0).then_some(number << 8 | u64::from(byte))
            })
            .filter(|_| first & 0x40 == 0);
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0_u64, |number, digit| match digit {
        b'0'..=b'7' if number >> 60 == 0 => Some(number << 3 | u64::from(digit - b'0')),
        _ => None,
    })
}

/// Up to the first NUL byte.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// What pax records say of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) sparse: bool,
}

impl Records {
    /// Takes over what the text of an extended header says: `length key=value` lines. Anything that
    /// is not well formed is refused, since a reader that guesses can be led astray.
    pub(super) fn read(&mut self, mut text: &[u8]) -> Result<(), String> {
        // Some writers pad with NUL bytes.
        while text.first().is_some_and(|byte| *byte != 0) {
            let (record, rest) = record(text).ok_or("its pax records are malformed")?;
            text = rest;
            let (key, value) = record;
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"size" => {
                    let size = str::from_utf8(value).ok().and_then(|size| size.parse().ok());
                    let size = size.filter(|size: &u64| i64::try_from(*size).is_ok());
                    self.size = Some(size.ok_or("its pax size is no number")?);
                }
                _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }
}

type Pair<'a> = (&'a [u8], &'a [u8]);

fn record(text: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let blank = text.iter().take(20).position(|byte| *byte == b' ')?;
    let length = str::from_utf8(&text[..blank]).ok()?.parse().ok()?;
    let (record, rest) = text.split_at_checked(length)?;
    let record = record.get(blank + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some(((&record[..equals], &record[equals + 1..]), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256_and_never_negative() {
        for (field, expected) in [
            (b"0000644\0".as_slice(), Some(0o644)),
            (b"    12 \0", Some(0o12)),
            (b"\0\0\0\0", Some(0)),
            (b"77777777777\0", Some(0o77_777_777_777)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"12a\0", None),
            (b"8\0", None),
            (b"-1\0", None),
            (b"\x80\0\0\0\0\0\0\0\0\0\x01\x00", Some(256)),
            (b"\x80\0\0\0\x40\0\0\0\0\0\0\0", Some(1 << 62)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\x80\x01\0\0\0\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\xc0\0\0\0\0\0\0\0\0\0\0\x01", None),
        ] {
            assert_eq!(number(field), expected, "{field:?}");
        }
    }

    #[test]
    fn pax_records_are_read_to_the_letter_or_refused() {
        let read = |text: &[u8]| {
            let mut records = Records::default();
            records.read(text).map(|()| records)
        };
        let both = read(b"11 path=ab\n17 size=12345678\n21 comment=a=b\nc d\n").unwrap_err();
        assert_eq!(both, "its pax records are malformed", "the lengths count every byte");
        let both = read(b"11 path=ab\n17 size=12345678\n19 comment=a=b\nc d\n\0\0").unwrap();
        let expected =
            Records { name: Some(b"ab".to_vec()), size: Some(12_345_678), sparse: false };
        assert_eq!(both, expected);
        assert!(read(b"22 GNU.sparse.major=1\n").unwrap().sparse);
        assert_eq!(read(b"").unwrap(), Records::default());
        for bad in [
            b"11 path=abc\n".as_slice(),
            b"999999999999 path=a\n",
            b"-1 path=a\n",
            b"5 a\n",
            b"6 a=b\nx",
            b"10 path=ab\n",
            b"path=ab\n",
            b"12 size=-12\n",
            b"28 size=9223372036854775808\n",
        ] {
            assert!(read(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
