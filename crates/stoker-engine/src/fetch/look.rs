//! What is learned of an object without reading all of it: its size and version, its beginning.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::error::Result;
use crate::metrics::Room as Name;
use crate::sample::Location;

use super::attempt::Ask;
use super::failure::Tries;
use super::opened::Opened;
use super::request::{pause, request};
use super::room::Room;
use super::{Fetcher, ObjectInfo, Urgency};

pub(super) async fn stat(room: &Room, urgency: Urgency, object: &Location) -> Result<ObjectInfo> {
    let object = Arc::new(object.clone());
    let mut tries = Tries::new(&room.config, urgency, &object, None);
    let asked = Arc::clone(&object);
    let ask = Ask::head(asked);
    loop {
        match request(room, &ask, &mut tries).await?.and_then(Opened::info) {
            Ok(info) => {
                room.metrics.room(Name::Fetch).items.add(1);
                room.pins.set(&object, &info);
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
    let ask = Ask { may_end: true, ..Ask::for_bytes(Arc::clone(&object), range) };
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
