//! A read: attempts until one succeeds, memory asked for in between.
//!
//! A body that breaks off goes on at the byte where it did, if the store can be held to the version
//! that was opened (If-Match); otherwise it starts anew. A large one is read in parts ([`split`]).
//!
//! Stores tell how long a body is. Where one does not, and the body ends with the connection, nothing
//! tells all of it from a part; so the object is asked for again as a range without an end, whose
//! answer says which bytes of how many it holds. Web servers may know no ranges, and are believed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::error::Result;
use crate::metrics::Room as Name;
use crate::sample::{Extent, Scheme};

use super::attempt::{Ask, changed};
use super::checksum::Checksum;
use super::failure::{Condition, Failure, Tries};
use super::opened::Opened;
use super::request::{pause, request};
use super::room::Room;
use super::{Fetcher, Urgency, pins, split};

/// Reads an extent of the given version, or of any; tells which it was, where the store does. A part
/// of an object is of the same version as all parts of it that were read before.
pub(super) async fn read<F, W>(
    room: &Room,
    urgency: Urgency,
    extent: &Extent,
    version: Option<String>,
    admit: F,
) -> Result<(Bytes, Option<String>)>
where
    F: Fn(u64) -> W,
    W: Future<Output = Result<()>>,
{
    let mut reading = Reading::of(room, urgency, extent);
    reading.is_pinned = extent.range.is_some();
    reading.version = version.or_else(|| room.pins.version(extent));
    if let Some(range) = &extent.range {
        let size = range.end.saturating_sub(range.start);
        admit(size).await?;
        reading.grant(size);
        if size == 0 {
            return Ok((Bytes::new(), reading.version));
        }
        if split::is_large(extent, size) {
            let bytes = split::read(&reading, size, None).await?;
            room.count_unchecked(extent);
            let version = room.pins.version(extent).or(reading.version);
            return Ok((bytes, version));
        }
    }
    loop {
        let opened = reading.open().await?;
        let Some(opened) = reading.admit(opened, &admit).await? else { continue };
        let bytes = match reading.size.filter(|size| split::is_large(extent, *size)) {
            Some(size) => Some(split::read(&reading, size, Some(opened)).await?),
            None => reading.collect(opened).await?.map(BytesMut::freeze),
        };
        if let Some(bytes) = bytes
            && reading.is_sound(&bytes).await?
        {
            room.lateness.note(reading.tries.took());
            return Ok((bytes, reading.version));
        }
    }
}

/// An extent that is being read.
pub(super) struct Reading<'a> {
    pub(super) room: &'a Room,
    pub(super) extent: &'a Extent,
    tries: Tries<'a>,
    /// The version that all attempts must meet, once it is known.
    version: Option<String>,
    /// Whether other reads of the object must meet it too.
    is_pinned: bool,
    /// Bytes of the whole object, once they are known: they must stay.
    whole: Option<u64>,
    /// What the store told of all bytes.
    checksum: Option<Checksum>,
    /// Whether it is asked for as a range, since the store did not tell its length otherwise.
    by_range: bool,
    /// Whether memory was had.
    granted: bool,
    /// The size of the extent, once it is known.
    size: Option<u64>,
    /// What came so far.
    bytes: BytesMut,
}

impl<'a> Reading<'a> {
    fn of(room: &'a Room, urgency: Urgency, extent: &'a Extent) -> Self {
        Self {
            room,
            extent,
            tries: Tries::new(&room.config, urgency, &extent.object, extent.range.clone()),
            version: None,
            is_pinned: false,
            whole: None,
            checksum: None,
            by_range: false,
            granted: false,
            size: None,
            bytes: BytesMut::new(),
        }
    }

    /// Takes note that memory was had for all of it.
    fn grant(&mut self, size: u64) {
        self.granted = true;
        self.size = Some(size);
    }

    /// The reading of a part of it, for which memory was had, and which is written to `place`.
    pub(super) fn part(&self, extent: &'a Extent, size: u64, place: BytesMut) -> Self {
        let mut part = Reading::of(self.room, self.tries.urgency(), extent);
        part.grant(size);
        part.is_pinned = self.is_pinned;
        part.bytes = place;
        part.follow(self);
        part
    }

    /// Has to be of the version that another is of.
    pub(super) fn follow(&mut self, other: &Self) {
        self.version.clone_from(&other.version);
        self.whole = other.whole;
    }

    /// Reads all of it, for which memory was had; `opened` is its first answer, if there is one.
    pub(super) async fn finish(mut self, mut opened: Option<Opened>) -> Result<BytesMut> {
        loop {
            let answer = match opened.take() {
                Some(answer) => answer,
                None => self.open_granted().await?,
            };
            if let Some(bytes) = self.collect(answer).await? {
                return Ok(bytes);
            }
        }
    }

    /// An answer with the bytes that are still to come, where memory was had for them.
    pub(super) async fn open_granted(&mut self) -> Result<Opened> {
        loop {
            let opened = self.open().await?;
            if let Some(opened) = self.admit(opened, &|_| std::future::ready(Ok(()))).await? {
                return Ok(opened);
            }
        }
    }

    /// An answer with the bytes that are still to come.
    async fn open(&mut self) -> Result<Opened> {
        loop {
            match request(self.room, &self.ask(), &mut self.tries).await? {
                Ok(opened) if opened.has_end || !split::promises_ranges(self.extent) => {
                    return Ok(opened);
                }
                Ok(untold) => {
                    drop(untold);
                    self.by_range = true;
                    let untold = Failure::transient("the store does not tell the length");
                    self.fail(untold.hint("put the object into a store that does")).await?;
                }
                Err(failure) if self.by_range && failure.status == Some(416) => {
                    if let Some(opened) = self.nothing(failure).await? {
                        return Ok(opened);
                    }
                }
                Err(failure) => self.fail(failure).await?,
            }
        }
    }

    /// An object without a byte has no range, not even one from its beginning: whether this is one.
    async fn nothing(&mut self, refused: Failure) -> Result<Option<Opened>> {
        let ask = Ask::head(Arc::clone(&self.extent.object));
        match request(self.room, &ask, &mut self.tries).await? {
            Ok(opened) if opened.length == Some(0) => return Ok(Some(opened)),
            Ok(_) => self.fail(refused).await?,
            Err(failure) => self.fail(failure).await?,
        }
        Ok(None)
    }

    /// Waits before another attempt, or ends the read.
    async fn fail(&mut self, failure: Failure) -> Result<()> {
        let failure = if failure.status == Some(412) { self.replaced().await? } else { failure };
        pause(self.room, &mut self.tries, failure).await
    }

    /// What the store refused to send another version than was asked for: says which there is now.
    async fn replaced(&mut self) -> Result<Failure> {
        let ask = Ask::head(Arc::clone(&self.extent.object));
        let now = request(self.room, &ask, &mut self.tries).await?.ok().and_then(|it| it.version);
        let before = self.version.as_deref().unwrap_or_default();
        Ok(Failure { status: Some(412), ..pins::replaced(before, now.as_deref()) })
    }

    /// Whether its bytes are held against what the store tells of them.
    fn is_checked(&self) -> bool {
        self.room.config.checksum && self.extent.object.scheme == Scheme::S3
    }

    /// Whether these are the bytes that the store holds, as far as it tells; if they are not, another
    /// attempt must read all of them.
    async fn is_sound(&mut self, bytes: &Bytes) -> Result<bool> {
        let Some(checksum) = self.checksum.take() else {
            self.room.count_unchecked(self.extent);
            return Ok(true);
        };
        let (told, held) = (checksum.clone(), bytes.clone());
        let fits = self.room.there(async move { told.fits(&held).await }).await?;
        let meter = &self.room.metrics.fetch;
        if fits {
            meter.checksums_right.add(1);
        } else {
            meter.checksums_wrong.add(1);
            self.fail(checksum.missed()).await?;
        }
        Ok(fits)
    }

    fn ask(&self) -> Ask {
        let got = self.bytes.len() as u64;
        let range = match &self.extent.range {
            Some(range) => Some(range.start + got..range.end),
            None if got > 0 => self.size.map(|size| got..size),
            None => self.by_range.then_some(0..Ask::END),
        };
        let object = Arc::clone(&self.extent.object);
        let (checksum, version) = (self.is_checked() && range.is_none(), self.version.clone());
        let may_end = range.as_ref().is_some_and(|range| range.end == Ask::END);
        Ask { may_end, version, checksum, ..Ask::for_bytes(object, range) }
    }

    /// Asks for memory, once; `None` if that took so long that the answer had to go.
    async fn admit<F, W>(&mut self, opened: Opened, admit: &F) -> Result<Option<Opened>>
    where
        F: Fn(u64) -> W,
        W: Future<Output = Result<()>>,
    {
        if self.is_pinned
            && let Err(failure) = self.room.pins.meet(&self.extent.object, &opened)
        {
            return self.tries.failed(failure, Condition::Fair, 0.0).map(|_| None);
        }
        if let (Some(before), Some(now)) = (self.whole, opened.whole)
            && before != now
        {
            let failure = pins::resized(before, now);
            return self.tries.failed(failure, Condition::Fair, 0.0).map(|_| None);
        }
        self.whole = self.whole.or(opened.whole);
        self.checksum = opened.checksum.clone().or_else(|| self.checksum.take());
        self.version = opened.version.clone().or_else(|| self.version.take());
        if let (Some(size), Some(length)) = (self.size, opened.length)
            && length != size - self.bytes.len() as u64
        {
            let failure = changed(format!("the object had {size} bytes when it was opened"));
            return self.tries.failed(failure, Condition::Fair, 0.0).map(|_| None);
        }
        self.size = self.size.or(opened.length);
        if self.granted {
            return Ok(Some(opened));
        }
        let mut admission = pin!(admit(self.size.unwrap_or(Fetcher::UNTOLD)));
        let at_once = poll_fn(|context| Poll::Ready(admission.as_mut().poll(context))).await;
        self.granted = true;
        match at_once {
            Poll::Ready(admitted) => admitted.map(|()| Some(opened)),
            Poll::Pending => {
                drop(opened);
                let since = Instant::now();
                admission.await?;
                self.tries.excuse(since.elapsed());
                Ok(None)
            }
        }
    }

    /// Reads the body; `None` if another attempt must read the rest of it.
    async fn collect(&mut self, opened: Opened) -> Result<Option<BytesMut>> {
        let got = std::mem::take(&mut self.bytes);
        let (mut bytes, done) = self.room.there(opened.collect(got)).await?;
        let Err(failure) = done else {
            let meter = self.room.metrics.room(Name::Fetch);
            meter.items.add(1);
            meter.bytes.add(bytes.len() as u64);
            return Ok(Some(bytes));
        };
        let partial = self.size.is_some_and(|size| (bytes.len() as u64) < size);
        let pinned = self.version.is_some() && self.extent.object.scheme != Scheme::File;
        if !(partial && pinned) {
            bytes.clear();
        }
        // Its place may be one in a larger buffer.
        self.bytes = bytes;
        self.fail(failure).await?;
        Ok(None)
    }
}

impl Room {
    /// Counts a read of which the store tells no checksum.
    fn count_unchecked(&self, extent: &Extent) {
        if self.config.checksum && extent.object.scheme != Scheme::File {
            self.metrics.fetch.checksums_lacking.add(1);
        }
    }
}
