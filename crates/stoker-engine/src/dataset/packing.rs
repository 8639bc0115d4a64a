//! What a shard really is, from its first bytes; its name is not believed in this.
//!
//! Plain, gzip (all members) and zstd (all frames) are read. What people give by mistake (another
//! format, a JSON array, UTF-16) is told from its first bytes, with a word on what to do.
//! Decompression streams: memory is bounded by the window of the format (zstd's default limit of
//! 128 MiB).

use std::io::{self, BufReader, Cursor, Read};

use crate::recipe::Format;

/// Reads from front to back, and over what nobody wants.
pub(super) trait Forward: Read {
    /// Goes on behind that many bytes; beyond the end nothing more is read.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

impl<T: Forward + ?Sized> Forward for Box<T> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        (**self).skip(bytes)
    }
}

impl Forward for crate::fetch::Reader {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        Self::skip(self, bytes)
    }
}

/// How a shard is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// What a shard is instead of what it should be, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) reason: String,
    pub(super) hint: &'static str,
}

/// A shard whose first bytes were looked at.
pub(super) struct Unpacked<'a> {
    pub(super) packing: Packing,
    /// Its first bytes, unpacked; they are still to be read.
    pub(super) head: Vec<u8>,
    pub(super) reader: Box<dyn Forward + 'a>,
}

/// Enough for all marks: tar's stands at byte 257.
pub(super) const HEAD: u64 = 512;
/// Compressed bytes are read in pieces of this size.
const BUFFER: usize = 256 << 10;

/// Why nothing can be read.
pub(super) enum Refusal {
    /// The shard is of another kind.
    Mistake(Mistake),
    /// Its first bytes can't be read or unpacked.
    Unreadable(Packing, io::Error),
}

/// Looks at the first bytes and unpacks what follows.
pub(super) fn unpack<'a>(raw: impl Forward + 'a) -> Result<Unpacked<'a>, Refusal> {
    let (head, raw) = peek(raw).map_err(|error| Refusal::Unreadable(Packing::Plain, error))?;
    let packing = compression(&head);
    let unreadable = |error| Refusal::Unreadable(packing, error);
    let reader: Box<dyn Read + 'a> = match packing {
        Packing::Plain => return Ok(Unpacked { packing, head, reader: Box::new(raw) }),
        Packing::Gzip => {
            let raw = BufReader::with_capacity(BUFFER, raw);
            Box::new(flate2::bufread::MultiGzDecoder::new(raw))
        }
        Packing::Zstd => Box::new(zstd::Decoder::new(raw).map_err(unreadable)?),
    };
    let (head, reader) = peek(Through(reader)).map_err(unreadable)?;
    if compression(&head) != Packing::Plain {
        let reason = "the source is compressed twice".to_owned();
        return Err(Refusal::Mistake(Mistake { reason, hint: "unpack it once" }));
    }
    Ok(Unpacked { packing, head, reader: Box::new(reader) })
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

/// Skips by reading.
struct Through<R>(R);

impl<R: Read> Read for Through<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Forward for Through<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        io::copy(&mut (&mut self.0).take(bytes), &mut io::sink()).map(|_| ())
    }
}

/// First bytes that were read before, and the rest.
struct Peeked<R> {
    head: Cursor<Vec<u8>>,
    rest: R,
}

impl<R: Read> Read for Peeked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.head.read(buffer)? {
            0 => self.rest.read(buffer),
            count => Ok(count),
        }
    }
}

impl<R: Forward> Forward for Peeked<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.head.get_ref().len() as u64 - self.head.position();
        let here = left.min(bytes);
        self.head.set_position(self.head.position() + here);
        if here < bytes { self.rest.skip(bytes - here) } else { Ok(()) }
    }
}

fn peek<'a, R: Forward + 'a>(mut reader: R) -> io::Result<(Vec<u8>, Peeked<R>)> {
    let mut head = Vec::new();
    (&mut reader).take(HEAD).read_to_end(&mut head)?;
    Ok((head.clone(), Peeked { head: Cursor::new(head), rest: reader }))
}

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Where text begins: 3 behind a byte order mark, which is then read. Refuses what is no text of
/// lines.
pub(super) fn begin_text(unpacked: &mut Unpacked<'_>) -> Result<u64, Mistake> {
    if let Some(mistake) = mistake(&unpacked.head, Format::Jsonl) {
        return Err(mistake);
    }
    if !unpacked.head.starts_with(BYTE_ORDER_MARK) {
        return Ok(0);
    }
    let offset = BYTE_ORDER_MARK.len() as u64;
    unpacked.reader.skip(offset).expect("the head was read before and is held in memory");
    Ok(offset)
}

fn compression(head: &[u8]) -> Packing {
    match head {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        // a frame, or one of the skippable frames that some writers begin with
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
        _ => Packing::Plain,
    }
}

/// What a file is that should be Parquet and is not.
pub(super) fn mistaken_for_parquet(head: &[u8]) -> Option<Mistake> {
    if head.starts_with(b"PAR1") {
        return None;
    }
    let packed = match compression(head) {
        Packing::Plain => None,
        packing => Some(format!("the source is compressed with {}", packing.name())),
    };
    let packed = packed.map(|reason| Mistake { reason, hint: "unpack it" });
    packed.or_else(|| mistake(head, Format::Parquet)).or_else(|| {
        let reason = "the source is no Parquet file".to_owned();
        Some(Mistake { reason, hint: "check dataset.source and dataset.format" })
    })
}

/// What first bytes are of, if it is known and not what was wanted.
pub(super) fn mistake(head: &[u8], wanted: Format) -> Option<Mistake> {
    const PARQUET: &str = "name it *.parquet, or set dataset.format = \"parquet\"";
    const TAR: &str = "name it *.tar, or set dataset.format = \"webdataset\"";
    const LINES: &str = "name it *.jsonl, or set dataset.format = \"jsonl\"";
    const SMALLER: &str = "use gzip, zstd or no compression";
    let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    let text = text.trim_ascii_start();
    let (found, hint) = match head {
        [b'P', b'A', b'R', b'1', ..] if wanted != Format::Parquet => ("a Parquet file", PARQUET),
        [b'P', b'A', b'R', b'E', ..] => ("an encrypted Parquet file", "decrypt it"),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => {
            ("an Arrow file", "write it as Parquet or as JSON lines")
        }
        [b'P', b'K', 3, 4, ..] => ("a zip archive", "unpack it"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => ("compressed with bzip2", SMALLER),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => ("compressed with xz", SMALLER),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [b'{', 0, ..] | [0, b'{', ..] => {
            ("UTF-16 or UTF-32 text", "write it in UTF-8")
        }
        _ if wanted != Format::WebDataset && head.get(257..262) == Some(b"ustar") => {
            ("a tar archive", TAR)
        }
        _ if wanted == Format::Jsonl && text.starts_with(b"[") => {
            ("one JSON array", "write one object per line, as `jq -c '.[]'` does")
        }
        _ if wanted != Format::Jsonl && text.starts_with(b"{") => ("JSON", LINES),
        _ => return None,
    };
    let wanted = match wanted {
        Format::Jsonl => "JSON lines",
        Format::WebDataset => "a tar archive",
        Format::Parquet => "a Parquet file",
        Format::Mds => "a shard of MDS",
    };
    let reason = match found {
        "compressed with bzip2" | "compressed with xz" | "UTF-16 or UTF-32 text" => {
            format!("the source is {found}")
        }
        _ => format!("the source is {found}, not {wanted}"),
    };
    Some(Mistake { reason, hint })
}
