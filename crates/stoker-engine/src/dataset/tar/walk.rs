//! The members of a tar archive, one after the other, and where each lies.
//!
//! Strict where Python's tarfile is quiet: a header that is damaged or cut off, content that ends
//! early and pax records that are malformed are errors with their offset, and never the end of the
//! archive. What stands behind the end marks (two blocks of zeros) is read on if it is another
//! archive, as `cat a.tar b.tar` makes it, and an error if it is anything else but zeros.
//!
//! A size in a pax record replaces that of the header everywhere, also where the next header is
//! looked for: a reader that takes one here and the other there can be led into a member's content.

use std::io::{self, ErrorKind};

use super::header::{self, BLOCK, Header, Kind, Records};
use crate::dataset::packing::Forward;

/// Longest name and longest set of records.
const LONGEST_TEXT: u64 = 1 << 20;

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    /// Where its first header begins.
    pub(super) header: u64,
    /// Where its content begins.
    pub(super) data: u64,
    pub(super) size: u64,
}

/// Why the archive can't be read on.
#[derive(Debug)]
pub(in crate::dataset) enum Stop {
    /// It is damaged at that offset.
    Damaged { offset: u64, reason: String, hint: Option<&'static str> },
    /// Its bytes can't be read or unpacked; those before the offset were.
    Read { offset: u64, error: io::Error },
    /// What was found can't be stored.
    Write(io::Error),
}

const CUT_OFF: Option<&str> = Some("the file is cut off: copy it again, or write it anew");
const WRITE_ANEW: Option<&str> = Some("write the archive anew");

/// Walks over an archive.
pub(super) struct Walker<R> {
    reader: R,
    /// Bytes of the archive; not known of a compressed one.
    total: Option<u64>,
    offset: u64,
    /// Bytes of the current member's content and padding that are still to be passed.
    content: u64,
    padding: u64,
    /// Whether the archive ended with its marks rather than with its bytes.
    pub(super) marked: bool,
}

impl<R: Forward> Walker<R> {
    pub(super) fn new(reader: R, total: Option<u64>) -> Self {
        Self { reader, total, offset: 0, content: 0, padding: 0, marked: false }
    }

    /// The next file; folders, links and devices are passed over.
    pub(super) fn next(&mut self) -> Result<Option<Member>, Stop> {
        loop {
            self.pass_content()?;
            let Some((begin, block)) = self.block()? else { return Ok(None) };
            let (kind, member) = self.entry(begin, block)?;
            self.announce(&member)?;
            if kind == Kind::File {
                return Ok(Some(member));
            }
        }
    }

    /// What a header announces, with what others said of it before.
    fn entry(&mut self, begin: u64, mut block: [u8; BLOCK]) -> Result<(Kind, Member), Stop> {
        let (mut at, mut name, mut records) = (begin, None, Records::default());
        loop {
            let wrong = |reason: String| damaged(at, format!("a header is damaged: {reason}"));
            let Header { kind, size, name: own_name } = self.header(&block, at)?;
            match kind {
                Kind::LongName => name = Some(until_nul(self.text(size, at)?)),
                Kind::LongLink => drop(self.text(size, at)?),
                Kind::Records => records.read(&self.text(size, at)?).map_err(wrong)?,
                Kind::GlobalRecords => {
                    let mut global = Records::default();
                    global.read(&self.text(size, at)?).map_err(wrong)?;
                    if global != Records::default() {
                        let reason = "it gives all members one name or size";
                        return Err(wrong(reason.to_owned()));
                    }
                }
                Kind::Sparse => return Err(sparse(at)),
                Kind::File if records.sparse => return Err(sparse(begin)),
                Kind::File | Kind::Other => {
                    let size = if kind == Kind::File { records.size.unwrap_or(size) } else { size };
                    let name = records.name.or(name).unwrap_or(own_name);
                    return Ok((kind, Member { name, header: begin, data: self.offset, size }));
                }
            }
            self.pass_content()?;
            let next = self.block()?;
            let alone = "a long name or pax header has no member";
            (at, block) = next.ok_or_else(|| damaged(begin, alone))?;
        }
    }

    /// Reads the content of the member that came last; what `visit` can't write ends it.
    pub(super) fn content(
        &mut self,
        visit: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), Stop> {
        let mut buffer = vec![0; self.content.min(64 << 10) as usize];
        while self.content > 0 {
            let part = self.content.min(buffer.len() as u64) as usize;
            let part = &mut buffer[..part];
            self.fill(part)?;
            self.content -= part.len() as u64;
            visit(part).map_err(Stop::Write)?;
        }
        Ok(())
    }

    fn header(&mut self, block: &[u8; BLOCK], at: u64) -> Result<Header, Stop> {
        header::read(block).map_err(|reason| {
            if self.marked {
                let reason = "what follows the end of the archive is no archive";
                damaged(at, reason)
            } else {
                damaged(at, format!("a header is damaged: {reason}"))
            }
        })
    }

    /// The content of a member that only says something about the next one.
    fn text(&mut self, size: u64, at: u64) -> Result<Vec<u8>, Stop> {
        if size > LONGEST_TEXT {
            return Err(damaged(at, format!("a name or pax header claims {size} bytes")));
        }
        let mut text = vec![0; size as usize];
        self.fill(&mut text)?;
        self.padding = padding(size);
        Ok(text)
    }

    /// Takes note of content to come; a claim beyond the end of the archive is refused.
    fn announce(&mut self, member: &Member) -> Result<(), Stop> {
        let size = member.size;
        let end = member.data.checked_add(size);
        let beyond = match (end, self.total) {
            (None, _) => true,
            (Some(end), Some(total)) => end > total,
            (Some(_), None) => false,
        };
        if beyond {
            let reason = format!(
                "the member {} claims {size} bytes, more than follow",
                super::shown(&member.name)
            );
            return Err(Stop::Damaged { offset: member.header, reason, hint: CUT_OFF });
        }
        (self.content, self.padding) = (size, padding(size));
        Ok(())
    }

    fn pass_content(&mut self) -> Result<(), Stop> {
        let (content, padding) = (self.content, self.padding);
        (self.content, self.padding) = (0, 0);
        if self.total.is_some() {
            // It is known to be there, but for the padding of the last member.
            self.reader.skip(content + padding).map_err(|error| self.unread(error))?;
            self.offset += content + padding;
            return Ok(());
        }
        let mut buffer = vec![0; 64 << 10];
        let mut left = content;
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            self.fill(&mut buffer[..part])?;
            left -= part as u64;
        }
        let read = self.read(&mut buffer[..padding as usize])?;
        self.offset += read as u64;
        Ok(())
    }

    /// The next block that is not all zeros, and where it begins.
    fn block(&mut self) -> Result<Option<(u64, [u8; BLOCK])>, Stop> {
        let mut zeros = 0;
        loop {
            let mut block = [0; BLOCK];
            let count = self.read(&mut block)?;
            if block != [0; BLOCK] {
                if count < BLOCK {
                    let reason = format!("the archive ends within a header, after {count} bytes");
                    return Err(Stop::Damaged { offset: self.offset, reason, hint: CUT_OFF });
                }
                self.offset += BLOCK as u64;
                return Ok(Some((self.offset - BLOCK as u64, block)));
            }
            self.offset += count as u64;
            if count < BLOCK {
                return Ok(None);
            }
            zeros += 1;
            self.marked |= zeros >= 2;
        }
    }

    /// Reads as much as there is.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Stop> {
        let mut got = 0;
        while got < buffer.len() {
            match self.reader.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unread(error)),
            }
        }
        Ok(got)
    }

    /// Reads all of it.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Stop> {
        let got = self.read(buffer)?;
        self.offset += got as u64;
        if got < buffer.len() {
            let reason = "the archive ends within a member".to_owned();
            return Err(Stop::Damaged { offset: self.offset, reason, hint: CUT_OFF });
        }
        Ok(())
    }

    fn unread(&self, error: io::Error) -> Stop {
        Stop::Read { offset: self.offset, error }
    }
}

fn damaged(offset: u64, reason: impl Into<String>) -> Stop {
    Stop::Damaged { offset, reason: reason.into(), hint: WRITE_ANEW }
}

fn sparse(offset: u64) -> Stop {
    let reason = "a member is a sparse file, which is not read".to_owned();
    Stop::Damaged { offset, reason, hint: Some("write the archive without --sparse") }
}

/// Bytes from the end of content to the next block.
fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    text
}
