//! What kind of file the source is, from its first bytes; its name is not believed.
//!
//! Plain text, gzip (all members) and zstd (all frames) are read. What people give by mistake
//! (Parquet, tar, a JSON array, UTF-16) is refused with a word on what to do. Decompression streams:
//! memory is bounded by the window of the format (zstd's default limit of 128 MiB).

use std::io::{self, BufReader, Cursor, Read};

/// How a source is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// What a source is instead of JSON lines, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) reason: &'static str,
    pub(super) hint: &'static str,
}

/// Text to be read, behind its byte order mark if it has one.
pub(super) struct Text<'a> {
    pub(super) packing: Packing,
    pub(super) reader: Box<dyn Read + 'a>,
    /// Where `reader` stands in the text: 3 behind a byte order mark.
    pub(super) offset: u64,
}

/// Enough for all marks: tar's stands at byte 257.
const HEAD: u64 = 512;
/// Compressed bytes are read in pieces of this size.
const BUFFER: usize = 256 << 10;

/// Why there is no text.
pub(super) enum Refusal {
    /// The source is of another kind.
    Mistake(Mistake),
    /// Its first bytes can't be read or unpacked.
    Unreadable(Packing, io::Error),
}

/// Looks at the first bytes and unpacks what follows.
pub(super) fn unpack<'a>(raw: impl Read + 'a) -> Result<Text<'a>, Refusal> {
    let (head, raw) = peek(raw).map_err(|error| Refusal::Unreadable(Packing::Plain, error))?;
    let packing = compression(&head);
    let unreadable = |error| Refusal::Unreadable(packing, error);
    let reader: Box<dyn Read + 'a> = match packing {
        Packing::Plain => return text(packing, &head, raw),
        Packing::Gzip => {
            let raw = BufReader::with_capacity(BUFFER, raw);
            Box::new(flate2::bufread::MultiGzDecoder::new(raw))
        }
        Packing::Zstd => Box::new(zstd::Decoder::new(raw).map_err(unreadable)?),
    };
    let (head, reader) = peek(reader).map_err(unreadable)?;
    if compression(&head) != Packing::Plain {
        let reason = "the source is compressed twice";
        return Err(Refusal::Mistake(Mistake { reason, hint: "unpack it once" }));
    }
    text(packing, &head, reader)
}

impl Packing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

fn peek<'a>(mut reader: impl Read + 'a) -> io::Result<(Vec<u8>, impl Read + 'a)> {
    let mut head = Vec::new();
    (&mut reader).take(HEAD).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(reader)))
}

fn text<'a>(
    packing: Packing,
    head: &[u8],
    mut reader: impl Read + 'a,
) -> Result<Text<'a>, Refusal> {
    if let Some(mistake) = mistake(head) {
        return Err(Refusal::Mistake(mistake));
    }
    let offset = if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    reader
        .read_exact(&mut [0; BYTE_ORDER_MARK.len()][..offset])
        .expect("the head was read before and is held in memory");
    Ok(Text { packing, reader: Box::new(reader), offset: offset as u64 })
}

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn compression(head: &[u8]) -> Packing {
    match head {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        // a frame, or one of the skippable frames that some writers begin with
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
        _ => Packing::Plain,
    }
}

fn mistake(head: &[u8]) -> Option<Mistake> {
    const JSON_LINES: &str = "write one JSON object per line";
    let found = |reason, hint| Some(Mistake { reason, hint });
    match head {
        [b'P', b'A', b'R', b'1', ..] => {
            return found("the source is a Parquet file, not JSON lines", JSON_LINES);
        }
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => {
            return found("the source is an Arrow file, not JSON lines", JSON_LINES);
        }
        [b'P', b'K', 3, 4, ..] => {
            return found("the source is a zip archive, not JSON lines", "unpack it");
        }
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => {
            return found("the source is compressed with bzip2", "use gzip, zstd or plain text");
        }
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            return found("the source is compressed with xz", "use gzip, zstd or plain text");
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [b'{', 0, ..] | [0, b'{', ..] => {
            return found("the source is UTF-16 or UTF-32 text", "write it in UTF-8");
        }
        _ => {}
    }
    if head.get(257..262) == Some(b"ustar") {
        return found("the source is a tar archive, not JSON lines", "unpack it");
    }
    let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    match text.trim_ascii_start().first() {
        Some(b'[') => found(
            "the source is one JSON array, not JSON lines",
            "write one object per line, as `jq -c '.[]'` does",
        ),
        _ => None,
    }
}
