//! A read: attempts until one succeeds, memory asked for in between.
//!
//! A body that breaks off goes on at the byte where it did, if the store can be held to the version
//! that was opened (If-Match); otherwise it starts anew.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use crate::error::Result;
use crate::metrics::Room as Name;
use crate::sample::{Extent, Location, Scheme};

use super::attempt::{Ask, Opened, changed};
use super::failure::{Again, Failure, Tries};
use super::hedge::Sending;
use super::{Fetcher, ObjectInfo, Room, Urgency};

pub(super) async fn stat(room: &Room, urgency: Urgency, object: &Location) -> Result<ObjectInfo> {
    let object = Arc::new(object.clone());
    let mut tries = Tries::new(&room.config, urgency, &object, None);
    let asked = Arc::clone(&object);
    let ask = Ask { object: asked, range: None, may_end: false, version: None, head: true };
    loop {
        match request(room, &ask, &mut tries).await?.and_then(Opened::info) {
            Ok(info) => {
                room.metrics.room(Name::Fetch).items.add(1);
                return Ok(info);
            }
            Err(failure) => pause(room, &mut tries, failure).await?,
        }
    }
}

/// Reads the first bytes of an object, `most` of them at most, and tells the size of all of it.
pub(super) async fn beginning(
    room: &Room,
    urgency: Urgency,
    object: &Arc<Location>,
    most: u64,
) -> Result<(Bytes, u64)> {
    let (object, range) = (Arc::clone(object), Some(0..most));
    let mut tries = Tries::new(&room.config, urgency, &object, range.clone());
    let ask = Ask { object: Arc::clone(&object), range, may_end: true, version: None, head: false };
    loop {
        let opened = match request(room, &ask, &mut tries).await? {
            Ok(opened) => opened,
            // An empty object has no first byte.
            Err(failure) if failure.status == Some(416) => return Ok((Bytes::new(), 0)),
            Err(failure) => {
                pause(room, &mut tries, failure).await?;
                continue;
            }
        };
        let whole = opened.whole.unwrap_or(Fetcher::UNTOLD);
        if opened.length.is_none_or(|length| length > most) {
            // The server does not know ranges. All of it is not asked for here.
            return Ok((Bytes::new(), whole));
        }
        let (bytes, done) = room.there(opened.collect(BytesMut::new())).await?;
        match done {
            Ok(()) => {
                let meter = room.metrics.room(Name::Fetch);
                meter.items.add(1);
                meter.bytes.add(bytes.len() as u64);
                return Ok((bytes.freeze(), whole));
            }
            Err(failure) => pause(room, &mut tries, failure).await?,
        }
    }
}

/// Reads an extent of the given version, or of any.
pub(super) async fn read<F, W>(
    room: &Room,
    urgency: Urgency,
    extent: &Extent,
    version: Option<String>,
    admit: F,
) -> Result<Bytes>
where
    F: Fn(u64) -> W,
    W: Future<Output = Result<()>>,
{
    let mut reading = Reading {
        room,
        extent,
        tries: Tries::new(&room.config, urgency, &extent.object, extent.range.clone()),
        version,
        granted: false,
        size: None,
        bytes: BytesMut::new(),
    };
    if let Some(range) = &extent.range {
        let size = range.end.saturating_sub(range.start);
        admit(size).await?;
        reading.granted = true;
        reading.size = Some(size);
        if size == 0 {
            return Ok(Bytes::new());
        }
    }
    loop {
        let opened = match request(room, &reading.ask(), &mut reading.tries).await? {
            Ok(opened) => opened,
            Err(failure) => {
                pause(room, &mut reading.tries, failure).await?;
                continue;
            }
        };
        let Some(opened) = reading.admit(opened, &admit).await? else { continue };
        if let Some(bytes) = reading.collect(opened).await? {
            return Ok(bytes);
        }
    }
}

struct Reading<'a> {
    room: &'a Room,
    extent: &'a Extent,
    tries: Tries<'a>,
    /// The version that all attempts must meet, once it is known.
    version: Option<String>,
    /// Whether memory was had.
    granted: bool,
    /// The size of the whole, once it is known.
    size: Option<u64>,
    /// What came so far.
    bytes: BytesMut,
}

impl Reading<'_> {
    fn ask(&self) -> Ask {
        let got = self.bytes.len() as u64;
        let range = match &self.extent.range {
            Some(range) => Some(range.start + got..range.end),
            None if got > 0 => self.size.map(|size| got..size),
            None => None,
        };
        let object = Arc::clone(&self.extent.object);
        Ask { object, range, may_end: false, version: self.version.clone(), head: false }
    }

    /// Asks for memory, once; `None` if that took so long that the answer had to go.
    async fn admit<F, W>(&mut self, opened: Opened, admit: &F) -> Result<Option<Opened>>
    where
        F: Fn(u64) -> W,
        W: Future<Output = Result<()>>,
    {
        self.version = opened.version.clone().or_else(|| self.version.take());
        if let (Some(size), Some(length)) = (self.size, opened.length)
            && length != size - self.bytes.len() as u64
        {
            let failure = changed(format!("the object had {size} bytes when it was opened"));
            return self.tries.failed(failure, false, 0.0).map(|_| None);
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
    async fn collect(&mut self, opened: Opened) -> Result<Option<Bytes>> {
        let got = std::mem::take(&mut self.bytes);
        let (bytes, done) = self.room.there(opened.collect(got)).await?;
        let Err(failure) = done else {
            let meter = self.room.metrics.room(Name::Fetch);
            meter.items.add(1);
            meter.bytes.add(bytes.len() as u64);
            return Ok(Some(bytes.freeze()));
        };
        let partial = self.size.is_some_and(|size| (bytes.len() as u64) < size);
        let pinned = self.version.is_some() && self.extent.object.scheme != Scheme::File;
        if partial && pinned {
            self.bytes = bytes;
        }
        pause(self.room, &mut self.tries, failure).await?;
        Ok(None)
    }
}

/// One request, in a slot of its own; what can't be asked is refused without one.
async fn request(
    room: &Room,
    ask: &Ask,
    tries: &mut Tries<'_>,
) -> Result<std::result::Result<Opened, Failure>> {
    let store = room.store(&ask.object).map_err(|failure| tries.refused(failure))?;
    let traffic = room.traffic(&ask.object);
    let urgency = tries.urgency();
    let coming = tries.coming();
    let slot = match tries.begun() {
        None => traffic.slot(urgency, coming).await?,
        Some(until) => {
            let traffic = Arc::clone(&traffic);
            let slot = async move { timeout_at(until, traffic.slot(urgency, coming)).await };
            match room.there(slot).await? {
                Ok(slot) => slot?,
                Err(_) => return Ok(Err(Failure::transient("there was no time for another try"))),
            }
        }
    };
    let (metrics, limits) = (Arc::clone(&room.metrics), room.limits(tries));
    let (ask, hedged) = (ask.clone(), room.hedged);
    let sending = Sending { store, traffic, metrics, ask, urgency, limits, hedged };
    room.there(sending.send(slot)).await
}

/// Waits before another attempt, or ends the read.
pub(super) async fn pause(room: &Room, tries: &mut Tries<'_>, failure: Failure) -> Result<()> {
    let soon = room.traffic(tries.object()).may_retry(failure.again);
    if !soon && failure.again != Again::Never {
        room.metrics.fetch.postponed.add(1);
    }
    let delay = tries.failed(failure, soon, room.chance.share())?;
    room.metrics.fetch.retries.add(1);
    room.there(async move { tokio::time::sleep(delay).await }).await
}
