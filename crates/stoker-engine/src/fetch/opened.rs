//! An answer whose head is there, and the reading of its body.
//!
//! [`Opened::collect`] reads the body, checks its length, and gives up one that stops coming.

use std::fs::File;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::client::HttpError;
use tokio::time::{Instant, timeout_at};

use crate::error::FetchErrorKind;
use crate::metrics::Cause;

use super::checksum::Checksum;
use super::failure::Failure;
use super::flight::InFlight;
use super::traffic::LEAST_PAUSE;
use super::watch::{DRIP, Look, Watch};
use super::{Fetcher, ObjectInfo, file, split};

/// Most memory that is reserved on a server's word; beyond it, memory grows as bytes come.
const RESERVED: u64 = 64 << 20;
/// Bodies of so many bytes take less time than the answer took to begin.
pub(super) const SMALL: u64 = 1 << 20;

/// An answer whose body is not read yet.
pub(super) struct Opened {
    /// The object's version, where the store tells it.
    pub(super) version: Option<String>,
    /// Bytes of the body; `None` where the server does not tell.
    pub(super) length: Option<u64>,
    /// Whether its end can be told from that of a broken connection.
    pub(super) has_end: bool,
    /// Bytes of the whole object, where a part of it came and the server tells.
    pub(super) whole: Option<u64>,
    /// What the store tells of all bytes, where it was asked to.
    pub(super) checksum: Option<Checksum>,
    /// What the store calls the request.
    pub(super) request_id: Option<String>,
    pub(super) body: Body,
    pub(super) in_flight: InFlight,
}

pub(super) enum Body {
    Empty,
    Stream(BoxStream<'static, Result<Bytes, HttpError>>),
    File(File, Range<u64>),
    /// It came with the head.
    Read(Bytes),
}

impl Opened {
    /// What was learned without reading the body.
    pub(super) fn info(self) -> Result<ObjectInfo, Failure> {
        let size = self.length.ok_or_else(|| {
            Failure::permanent(FetchErrorKind::Transient, "the server does not tell the size")
        })?;
        Ok(ObjectInfo { size, version: self.version })
    }

    /// The first bytes of the body alone; the rest is not read.
    pub(super) fn first(mut self, length: u64) -> Self {
        self.length = Some(length);
        self.body = match self.body {
            Body::Stream(stream) => Body::Stream(split::first(stream, length)),
            Body::File(file, range) => Body::File(file, range.start..range.start + length),
            Body::Read(bytes) => Body::Read(bytes.slice(..length as usize)),
            Body::Empty => Body::Empty,
        };
        self
    }

    /// Reads the body behind `bytes`, which holds what earlier attempts have read of it; keeps there
    /// what it got if it fails.
    pub(super) async fn collect(self, mut bytes: BytesMut) -> (BytesMut, Result<(), Failure>) {
        let in_flight = self.in_flight;
        let done = match self.body {
            Body::Empty => Ok(()),
            Body::Read(read) => {
                bytes = BytesMut::from(read);
                Ok(())
            }
            Body::File(file, range) => match file::read(file, range).await {
                Ok(read) => {
                    bytes = BytesMut::from(read);
                    Ok(())
                }
                Err(failure) => Err(failure),
            },
            Body::Stream(stream) => {
                let done = drain(stream, self.length, &mut bytes, &in_flight).await;
                done.map_err(|failure| Failure { request_id: self.request_id, ..failure })
            }
        };
        drop(in_flight);
        (bytes, done)
    }
}

async fn drain(
    mut stream: BoxStream<'static, Result<Bytes, HttpError>>,
    length: Option<u64>,
    bytes: &mut BytesMut,
    in_flight: &InFlight,
) -> Result<(), Failure> {
    let InFlight { traffic, limits, .. } = in_flight;
    let limit = length.unwrap_or(Fetcher::UNTOLD);
    bytes.reserve(length.unwrap_or(0).min(RESERVED) as usize);
    let begin = Instant::now();
    // What is small should be there in a moment, also where no rate is known.
    let at_once = |length: u64| length as f64 / (DRIP * LEAST_PAUSE.as_secs_f64());
    let usual = traffic.usual_rate().or(length.filter(|length| *length <= SMALL).map(at_once));
    let mut watch = Watch::new(begin, *limits, usual);
    let (mut got, mut counted) = (0, false);
    traffic.begins();
    // How long it may pause is asked when it does: mostly it does not.
    let mut pause = LEAST_PAUSE.min(limits.silence);
    loop {
        let until = watch.next(pause).min(limits.until);
        let Ok(next) = timeout_at(until, stream.next()).await else {
            let now = Instant::now();
            pause = traffic.pause(limits.silence);
            let left = length.map(|length| length - got);
            let since = now - pause.max(watch.quiet(now));
            match watch.look(now, pause, left) {
                _ if now >= limits.until => {
                    let reason = format!("{got} bytes came in time");
                    return Err(Failure::transient(reason).because(Cause::Stalled));
                }
                Look::Silent => return Err(in_flight.silent(limits.silence)),
                Look::Pauses(pause) if traffic.stops(since, limits.is_early, &mut counted) => {
                    return Err(in_flight.silent(pause));
                }
                Look::Drips(rate) if traffic.stops(since, limits.is_early, &mut counted) => {
                    return Err(in_flight.drips(rate, watch.quiet(now)));
                }
                Look::Hopeless(rate) => return Err(in_flight.drips(rate, watch.quiet(now))),
                Look::Pauses(_) | Look::Drips(_) | Look::Fine => continue,
            }
        };
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|error| in_flight.broken(&error))?;
        watch.got(Instant::now(), chunk.len());
        got += chunk.len() as u64;
        if got > limit {
            let reason = format!("the body is longer than {limit} bytes");
            return Err(match length {
                Some(_) => Failure::transient(reason),
                None => Failure::permanent(FetchErrorKind::TooLarge, reason)
                    .hint("the server does not tell the size; put the object into a store"),
            });
        }
        bytes.extend_from_slice(&chunk);
    }
    match length {
        Some(length) if got < length => {
            Err(Failure::transient(format!("the body ended after {got} of {length} bytes")))
        }
        _ => {
            traffic.came(got, begin);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::fetch::Urgency;
    use crate::fetch::flight::Limits;
    use crate::fetch::slots::{Coming, Slots};
    use crate::fetch::traffic::Traffic;
    use crate::metrics::Metrics;

    /// A store of which some bodies are borne is not one that is slow as a whole.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_borne_counts_once_as_late() {
        let (metrics, second) = (Arc::<Metrics>::default(), Duration::from_secs(1));
        let slots = Slots::new(64, Arc::clone(&metrics));
        let traffic = Arc::new(Traffic::new(0, 64, slots, Arc::clone(&metrics)));
        while traffic.stops(Instant::now(), true, &mut false) {}
        for _ in 0..9 {
            let slot = traffic.slot(Urgency::NOW, Coming::Anew).await.unwrap();
            let until = Instant::now() + 300 * second;
            let (silence, patience, is_early) = (10 * second, 300 * second, true);
            let limits = Limits { silence, until, patience, is_early };
            let in_flight =
                InFlight::local(Arc::clone(&metrics), Arc::clone(&traffic), slot, limits);
            let drops = futures::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Some((Ok(Bytes::from_static(b"x")), ()))
            });
            let (body, mut bytes) = (drops.take(30).boxed(), BytesMut::new());
            drain(body, Some(30), &mut bytes, &in_flight).await.unwrap();
        }
        (0..20).for_each(|_| traffic.begins());
        assert!(
            traffic.stops(Instant::now(), true, &mut false),
            "a body that stops may be given up"
        );
    }
}
