//! What happens to a good answer on its way: to its head, and to its body at some byte.
//!
//! What breaks off waits for a moment first. hyper writes out what it has when the body has nothing
//! more to give for now, and throws it away when the body fails.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue};
use hyper::{Response, Version};
use s3s::Body;
use s3s::dto::StreamingBlob;

use super::connection::Breaking;
use super::injector::Injector;
use super::rule::Fault;

/// The moment in which hyper writes out what it has.
const FLUSH: Duration = Duration::from_millis(2);
/// How often a slow body gives something.
const DRIPS: u64 = 50;

/// Does to a good answer with a body what the fault says, and counts it when it is done.
pub(super) fn damage(
    answer: Response<Body>,
    fault: &Fault,
    injector: &Arc<Injector>,
    breaking: &Breaking,
) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    let length = text(&head.headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let Some(length) = length.filter(|length| *length > 0 && head.status.is_success()) else {
        return Response::from_parts(head, body);
    };
    let place = |at: Option<u64>| at.map_or(length / 2, |at| at.min(length - 1));
    let done = Done { injector: Arc::clone(injector), name: fault.name().into_owned() };
    let act = match fault {
        Fault::WrongRange {} => {
            let next = text(&head.headers, &CONTENT_RANGE).and_then(next_range);
            if let Some(next) = next {
                head.headers.insert(CONTENT_RANGE, next);
                done.count();
            }
            return Response::from_parts(head, body);
        }
        Fault::NoRange {} => {
            if head.headers.remove(CONTENT_RANGE).is_some() {
                done.count();
            }
            return Response::from_parts(head, body);
        }
        Fault::Short { at, told: true } => {
            let at = place(*at);
            head.headers.insert(CONTENT_LENGTH, at.into());
            done.count();
            Act::End { at, breaks: None }
        }
        Fault::Short { at, told: false } => {
            // HTTP/1.0 has no other way to say where a body ends.
            head.headers.remove(CONTENT_LENGTH);
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            head.version = Version::HTTP_10;
            done.count();
            Act::End { at: place(*at), breaks: None }
        }
        Fault::HangUp { at } => Act::End { at: place(*at), breaks: Some(false) },
        Fault::Reset { at } => Act::End { at: place(*at), breaks: Some(true) },
        Fault::Stall { at, lasts } => Act::Wait { at: place(*at), lasts: *lasts },
        Fault::Flip { at } => Act::Flip { at: place(*at) },
        Fault::RepeatHalf {} => Act::Repeat { half: length / 2, kept: BytesMut::new() },
        Fault::Drip { rate } => Act::Drip { bytes: rate.div_ceil(DRIPS).max(1), rate: *rate },
        _ => return Response::from_parts(head, body),
    };
    let state = State {
        body,
        here: Bytes::new(),
        sent: 0,
        length,
        act: Some(act),
        done,
        breaking: breaking.clone(),
    };
    let damaged = stream::try_unfold(state, State::next);
    Response::from_parts(head, StreamingBlob::wrap(damaged).into())
}

/// Counts the fault.
struct Done {
    injector: Arc<Injector>,
    name: String,
}

impl Done {
    fn count(&self) {
        self.injector.count(&self.name);
    }
}

/// What is done to the body, once.
enum Act {
    /// It ends before that byte: in order, by a closed connection, or by a reset one.
    End {
        at: u64,
        breaks: Option<bool>,
    },
    Wait {
        at: u64,
        lasts: Option<Duration>,
    },
    Flip {
        at: u64,
    },
    Repeat {
        half: u64,
        kept: BytesMut,
    },
    Drip {
        bytes: u64,
        rate: u64,
    },
}

struct State {
    body: Body,
    /// What has come of the body and is not sent.
    here: Bytes,
    sent: u64,
    length: u64,
    act: Option<Act>,
    done: Done,
    breaking: Breaking,
}

impl State {
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.here.is_empty() {
            match self.body.next().await {
                Some(bytes) => self.here = bytes.map_err(io::Error::other)?,
                None => return Ok(None),
            }
        }
        let here = self.here.len() as u64;
        // The act begins at a byte: what is before it is sent as it is.
        let piece = match self.act.take() {
            None => here,
            Some(Act::Drip { bytes, rate }) => {
                if self.sent == 0 {
                    self.done.count();
                }
                let bytes = bytes.min(here);
                tokio::time::sleep(Duration::from_secs_f64(bytes as f64 / rate as f64)).await;
                self.act = Some(Act::Drip { bytes: rate.div_ceil(DRIPS).max(1), rate });
                bytes
            }
            Some(Act::Repeat { half, kept }) => self.repeat(half, kept),
            Some(act) => {
                let before = act.place().saturating_sub(self.sent);
                if before > 0 {
                    self.act = Some(act);
                    before.min(here)
                } else if self.begin(act).await? {
                    return Ok(None);
                } else {
                    here
                }
            }
        };
        let piece = self.here.split_to(piece as usize);
        self.sent += piece.len() as u64;
        Ok(Some((piece, self)))
    }

    /// Does what is done at this byte; whether the body ends with it.
    async fn begin(&mut self, act: Act) -> io::Result<bool> {
        if let Act::End { breaks: None, .. } = act {
            // It was counted when the head was made.
            return Ok(true);
        }
        self.done.count();
        match act {
            Act::End { breaks, .. } => {
                tokio::time::sleep(FLUSH).await;
                return Err(self.breaking.set(breaks == Some(true)));
            }
            Act::Wait { lasts: Some(lasts), .. } => tokio::time::sleep(lasts).await,
            Act::Wait { lasts: None, .. } => std::future::pending().await,
            Act::Flip { .. } => {
                let mut bytes = BytesMut::from(&self.here[..]);
                bytes[0] ^= 0xFF;
                self.here = bytes.freeze();
            }
            Act::Repeat { .. } | Act::Drip { .. } => {}
        }
        Ok(false)
    }

    /// Keeps the first half, then puts it in place of the second; how much of what is here is sent.
    fn repeat(&mut self, half: u64, mut kept: BytesMut) -> u64 {
        let here = self.here.len() as u64;
        if self.sent < half {
            let piece = here.min(half - self.sent);
            kept.extend_from_slice(&self.here[..piece as usize]);
            self.act = Some(Act::Repeat { half, kept });
            return piece;
        }
        if self.sent == half {
            self.done.count();
        }
        // Of an odd length, the last byte stays.
        let behind = (self.sent - half) as usize;
        let piece = here.min(self.length - self.sent);
        let mut bytes = BytesMut::from(&self.here[..]);
        for (byte, again) in bytes.iter_mut().zip(kept.iter().skip(behind)) {
            *byte = *again;
        }
        self.here = bytes.freeze();
        self.act = Some(Act::Repeat { half, kept });
        piece
    }
}

impl Act {
    fn place(&self) -> u64 {
        match self {
            Self::End { at, .. } | Self::Wait { at, .. } | Self::Flip { at } => *at,
            Self::Repeat { .. } | Self::Drip { .. } => 0,
        }
    }
}

/// The range behind a range, of the same object.
fn next_range(told: &str) -> Option<HeaderValue> {
    let (range, whole) = told.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let length = last - first + 1;
    format!("bytes {}-{}/{whole}", first + length, last + length).try_into().ok()
}

fn text<'h>(headers: &'h HeaderMap, name: &hyper::header::HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
