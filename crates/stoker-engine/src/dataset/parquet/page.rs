//! What a page says of itself, before its reader believes it.
//!
//! A page's header claims how long it will be and how many values it has, and readers reserve memory
//! on its word; some decompressors go on for as long as there is something to unpack, whatever was
//! claimed. So the few numbers of the header that matter are read here first, as the library reads
//! them (Thrift's compact protocol), and held against limits.

use std::io::{self, Read};

use parquet::basic::Compression;

use super::delta;
use crate::error::Bytes as Size;

/// Largest page that is read, as it is stored and unpacked. One that holds the images of a whole row
/// group has hundreds of megabytes.
pub(super) const LARGEST: u64 = 1 << 30;
/// Most values of a column in a row group: each takes some 20 bytes while a row is put together, of
/// which one may have them all.
pub(super) const MOST_VALUES: u64 = 1 << 26;
/// Most values of a dictionary, which is read as a whole.
const MOST_IN_DICTIONARY: u64 = 1 << 24;
/// So much may be in the columns of a row group beyond what is told of them: some writers do not count
/// all.
pub(super) const UNTOLD: u64 = 64 << 20;
/// Structs within structs, at most: the library's own limit.
const DEEPEST: u8 = 64;

/// What is told of a column in a row group.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Its size when it is unpacked.
    pub(super) unpacked: u64,
    pub(super) codec: Compression,
    /// Whether its values have levels of repetition and of definition.
    pub(super) levels: [bool; 2],
}

/// The kinds of pages that are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Data,
    Dictionary,
}

/// The numbers of a page's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    kind: Kind,
    unpacked: i32,
    packed: i32,
    values: i32,
    /// Bytes in front of the values that are never compressed: levels of two kinds.
    levels: [i32; 2],
    is_plain: bool,
    /// Whether it begins with lengths that have to be looked at.
    pub(super) is_delta: bool,
    /// Bytes of the header itself.
    pub(super) head: u64,
}

impl Page {
    /// Of bytes that begin with a header, if they do.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = Compact(bytes);
        let mut page = Self::default();
        rest.fields(&HEADER, |rest, id, kind| {
            match id {
                1 => page.kind = if rest.int()? == 2 { Kind::Dictionary } else { Kind::Data },
                2 => page.unpacked = rest.int()?,
                3 => page.packed = rest.int()?,
                // Only one should be there; what is most counts.
                5 | 7 => {
                    let known: &[u8] = if id == 5 { &DATA } else { &DICTIONARY };
                    rest.fields(known, |rest, id, kind| {
                        match id {
                            1 => page.values = rest.int()?.max(page.values),
                            2 => page.is_delta |= delta::ENCODINGS.contains(&rest.int()?),
                            _ => rest.skip(kind, DEEPEST)?,
                        }
                        Some(())
                    })?;
                }
                8 => {
                    (page.levels, page.is_plain) = ([0; 2], false);
                    rest.fields(&DATA_V2, |rest, id, kind| {
                        match id {
                            1 => page.values = rest.int()?.max(page.values),
                            4 => page.is_delta |= delta::ENCODINGS.contains(&rest.int()?),
                            5 | 6 => page.levels[id as usize - 5] = rest.int()?,
                            7 => page.is_plain = kind == FALSE,
                            _ => rest.skip(kind, DEEPEST)?,
                        }
                        Some(())
                    })?;
                }
                _ => rest.skip(kind, DEEPEST)?,
            }
            Some(())
        })?;
        page.head = (bytes.len() - rest.0.len()) as u64;
        Some(page)
    }

    /// Its bytes when it is unpacked.
    pub(super) fn unpacked(&self) -> u64 {
        at_least_none(self.unpacked)
    }

    /// Its bytes as they are stored.
    pub(super) fn packed(&self) -> u64 {
        at_least_none(self.packed)
    }

    /// Its values, but for those of a dictionary.
    pub(super) fn data_values(&self) -> u64 {
        if self.kind == Kind::Dictionary { 0 } else { at_least_none(self.values) }
    }

    /// What is wrong with its claims, before anything is reserved for it.
    pub(super) fn refused(&self, chunk: &Chunk) -> Option<Refused> {
        let (unpacked, packed) = (at_least_none(self.unpacked), at_least_none(self.packed));
        if unpacked.max(packed) > LARGEST {
            return Some(Refused::Large(unpacked.max(packed)));
        }
        if unpacked > chunk.unpacked.max(UNTOLD) {
            return Some(Refused::Claim {
                claimed: format!("{} when it is unpacked", Size(unpacked)),
                all: format!("{} of its whole column", Size(chunk.unpacked)),
            });
        }
        let values = at_least_none(self.values);
        let most = if self.kind == Kind::Dictionary {
            // Each takes a byte at least.
            unpacked.min(MOST_IN_DICTIONARY)
        } else {
            MOST_VALUES
        };
        (values > most).then(|| Refused::Claim {
            claimed: format!("{values} values"),
            all: format!("{most} at most"),
        })
    }

    /// Whether `body` unpacks to more than it claims. Only asked where the reader itself would go on
    /// unpacking; it costs unpacking the page twice.
    pub(super) fn is_bomb(&self, body: &[u8], codec: Compression) -> bool {
        let levels = self.levels.map(at_least_none).iter().sum::<u64>();
        let Some(packed) = body.get(levels as usize..) else { return false };
        let most = at_least_none(self.unpacked).saturating_sub(levels);
        match codec {
            _ if self.is_plain => false,
            Compression::GZIP(_) => is_more(flate2::read::MultiGzDecoder::new(packed), most),
            Compression::BROTLI(_) => is_more(brotli::Decompressor::new(packed, 4096), most),
            // Also read as frames, as older writers made them.
            Compression::LZ4 => is_more(lz4_flex::frame::FrameDecoder::new(packed), most),
            _ => false,
        }
    }
}

/// Whether there is more to read than so many bytes. What is damaged ends where it is, and the library
/// says so.
fn is_more(reader: impl Read, most: u64) -> bool {
    let mut reader = reader.take(most + 1);
    io::copy(&mut reader, &mut io::sink()).is_ok_and(|bytes| bytes > most) || reader.limit() == 0
}

fn at_least_none(number: i32) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Why a page is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Larger than any that is read.
    Large(u64),
    /// More than can be.
    Claim { claimed: String, all: String },
    /// It unpacks to more than it claims.
    Bomb(u64),
    /// The lengths of its values are none.
    Lengths,
    /// Its values are much longer than it is, as each repeats some of the one before.
    Repeats,
    /// Nobody read its header.
    Unknown,
}

impl Refused {
    pub(super) fn bomb(page: &Page) -> Self {
        Self::Bomb(at_least_none(page.unpacked))
    }

    pub(super) fn reason(&self) -> String {
        match self {
            Self::Large(size) => {
                format!("a page claims {}, and up to {} are read", Size(*size), Size(LARGEST))
            }
            Self::Claim { claimed, all } => format!("a page claims {claimed}, and there are {all}"),
            Self::Bomb(size) => {
                format!("a page claims {}, and unpacks to more than that", Size(*size))
            }
            Self::Lengths => "a page has no lengths of its values that can be read".into(),
            Self::Repeats => {
                format!(
                    "rows that are read at once repeat more than {} of each other",
                    Size(LARGEST)
                )
            }
            Self::Unknown => "a page has no header that can be read".into(),
        }
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I32: u8 = 5;
const STRUCT: u8 = 12;

/// The kinds of the fields that the library knows, by their numbers from 1 on: it reads them as these
/// kinds, whatever is stated.
const HEADER: [u8; 8] = [I32, I32, I32, I32, STRUCT, STRUCT, STRUCT, STRUCT];
const DATA: [u8; 4] = [I32; 4];
const DICTIONARY: [u8; 3] = [I32, I32, TRUE];
const DATA_V2: [u8; 7] = [I32, I32, I32, I32, I32, I32, TRUE];

/// Thrift's compact protocol, as the library reads it.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0_u32);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F).wrapping_shl(shift);
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
    }

    fn int(&mut self) -> Option<i32> {
        let number = self.number()?;
        Some(((number >> 1) as i64 ^ -((number & 1) as i64)) as i32)
    }

    /// The fields of a struct, each with its number and kind; none where one that is known is of
    /// another kind.
    fn fields(
        &mut self,
        known: &[u8],
        mut each: impl FnMut(&mut Self, i16, u8) -> Option<()>,
    ) -> Option<()> {
        let mut last = 0_i16;
        loop {
            let head = self.byte()?;
            let (step, kind) = (head >> 4, head & 0xF);
            if kind == 0 {
                return Some(());
            }
            last = match step {
                0 => self.int()? as i16,
                step => last.checked_add(i16::from(step))?,
            };
            let place = usize::try_from(last).ok().and_then(|number| number.checked_sub(1));
            let own = place.and_then(|place| known.get(place));
            if own.is_some_and(|own| kind != *own && (*own, kind) != (TRUE, FALSE)) {
                return None;
            }
            each(self, last, kind)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => Some(()),
            3 => self.pass(1),
            4..=6 => self.number().map(|_| ()),
            7 => self.pass(8),
            8 => {
                let bytes = self.number()?;
                self.pass(bytes)
            }
            9 | 10 => {
                let head = self.byte()?;
                let items = match head >> 4 {
                    15 => i32::try_from(self.number()?).ok()?,
                    few => i32::from(few),
                };
                (0..items).try_for_each(|_| self.item(head & 0xF, depth))
            }
            11 => {
                let items = i32::try_from(self.number()?).ok()?;
                let kinds = if items > 0 { self.byte()? } else { 0 };
                (0..items).try_for_each(|_| {
                    self.item(kinds >> 4, depth)?;
                    self.item(kinds & 0xF, depth)
                })
            }
            STRUCT => self.fields(&[], |rest, _, kind| rest.skip(kind, depth)),
            13 => self.pass(16),
            _ => None,
        }
    }

    /// An item of a list. Lists of truth values are in no header, and libraries differ on them.
    fn item(&mut self, kind: u8, depth: u8) -> Option<()> {
        if kind == TRUE || kind == FALSE { None } else { self.skip(kind, depth) }
    }
}
