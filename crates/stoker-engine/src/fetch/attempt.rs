//! One attempt: a request, its answer, its body.
//!
//! [`open`] ends with the headers, checked against what was asked; [`Opened::collect`] reads the
//! body and checks its length. Each failure says what it means and whether another attempt may help.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::client::{HttpError, HttpRequest, HttpRequestBody, HttpResponse};
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, RANGE,
};
use reqwest::{Method, StatusCode};

use crate::error::FetchErrorKind;
use crate::metrics::{Metrics, Room, nanos};
use crate::sample::Location;

use super::failure::Failure;
use super::refusal::{Secrets, refusal};
use super::slots::Slot;
use super::store::{Remote, Store};
use super::{Fetcher, ObjectInfo, file};

/// Most memory that is reserved on a server's word; beyond it, memory grows as bytes come.
const RESERVED: u64 = 64 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) object: Arc<Location>,
    /// `None` is all of it.
    pub(super) range: Option<Range<u64>>,
    /// Whether the object may end before the range does.
    pub(super) may_end: bool,
    /// The version that it must be.
    pub(super) version: Option<String>,
    /// Only size and version.
    pub(super) head: bool,
}

/// A request in flight: holds one of the slots and counts, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    metrics: Arc<Metrics>,
    since: Instant,
    _slot: Slot,
}

impl InFlight {
    pub(super) fn begin(metrics: &Arc<Metrics>, slot: Slot) -> Self {
        metrics.fetch.requests.add(1);
        metrics.fetch.in_flight.add(1);
        Self { metrics: Arc::clone(metrics), since: Instant::now(), _slot: slot }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.fetch.in_flight.sub(1);
        self.metrics.room(Room::Fetch).busy_nanos.add(nanos(self.since.elapsed()));
    }
}

/// An answer whose body is not read yet.
pub(super) struct Opened {
    /// The object's version, where the store tells it.
    pub(super) version: Option<String>,
    /// Bytes of the body; `None` where the server does not tell.
    pub(super) length: Option<u64>,
    /// Bytes of the whole object, where a part of it came and the server tells.
    pub(super) whole: Option<u64>,
    body: Body,
    in_flight: InFlight,
}

enum Body {
    Empty,
    Stream(BoxStream<'static, Result<Bytes, HttpError>>),
    File(File, Range<u64>),
}

impl Opened {
    /// What was learned without reading the body.
    pub(super) fn info(self) -> Result<ObjectInfo, Failure> {
        let size = self.length.ok_or_else(|| {
            Failure::permanent(FetchErrorKind::Transient, "the server does not tell the size")
        })?;
        Ok(ObjectInfo { size, version: self.version })
    }
}

/// Sends the request and takes the headers of its answer.
pub(super) async fn open(
    store: Arc<Store>,
    ask: Ask,
    in_flight: InFlight,
) -> Result<Opened, Failure> {
    match &*store {
        Store::Files => open_file(ask, in_flight).await,
        Store::Remote(remote) => {
            let mut request = request(remote, &ask)?;
            remote.sign(&mut request).await?;
            let secrets = Secrets::of(&request);
            let answer = remote.client.execute(request).await;
            let answer = answer.map_err(|error| Failure::of_way(&error))?;
            if !answer.status().is_success() {
                return Err(refusal(remote, answer, &secrets).await);
            }
            accept(answer, &ask, in_flight)
        }
    }
}

async fn open_file(ask: Ask, in_flight: InFlight) -> Result<Opened, Failure> {
    let (file, info) = file::open(&ask.object.key).await?;
    if ask.version.is_some() && ask.version != info.version {
        return Err(changed("the file was written to while it was read"));
    }
    let mut range = ask.range.unwrap_or(0..info.size);
    if ask.may_end {
        range.end = range.end.min(info.size);
    }
    if range.end > info.size {
        return Err(changed(format!("the file has {} bytes", info.size)));
    }
    let (length, whole) = (Some(range.end - range.start), Some(info.size));
    Ok(Opened { version: info.version, length, whole, body: Body::File(file, range), in_flight })
}

fn request(remote: &Remote, ask: &Ask) -> Result<HttpRequest, Failure> {
    let url = remote.url(&ask.object)?;
    let invalid = |what: &str| Failure::permanent(FetchErrorKind::Unconfigured, what);
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = if ask.head { Method::HEAD } else { Method::GET };
    *request.uri_mut() = url.as_str().parse().map_err(|_| invalid("the address is not a URL"))?;
    if let Some(Range { start, end }) = ask.range {
        let range = HeaderValue::try_from(format!("bytes={start}-{}", end - 1));
        request.headers_mut().insert(RANGE, range.map_err(|_| invalid("not a range"))?);
    }
    if let Some(version) = &ask.version {
        let version = HeaderValue::try_from(version.as_str());
        request.headers_mut().insert(IF_MATCH, version.map_err(|_| invalid("not a version"))?);
    }
    Ok(request)
}

/// Checks the headers of a good answer against what was asked.
fn accept(answer: HttpResponse, ask: &Ask, in_flight: InFlight) -> Result<Opened, Failure> {
    let (head, body) = answer.into_parts();
    let length = text(&head.headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let version = strong_version(&head.headers);
    if ask.version.is_some() && version.is_some() && version != ask.version {
        return Err(changed("the object was replaced while it was read"));
    }
    if ask.head {
        return Ok(Opened { version, length, whole: length, body: Body::Empty, in_flight });
    }
    let (length, whole) = match &ask.range {
        None => (length, length),
        // A server that gives all of it instead gives the beginning too.
        Some(_) if ask.may_end && head.status == StatusCode::OK => (length, length),
        Some(range) => {
            let (range, whole) = check_range(head.status, &head.headers, range, ask.may_end)?;
            (Some(range.end - range.start), whole)
        }
    };
    Ok(Opened { version, length, whole, body: Body::Stream(body.bytes_stream()), in_flight })
}

/// A ranged answer must say that it is one, and the right one; which it is, and the size of the whole
/// object where that is told.
fn check_range(
    status: StatusCode,
    headers: &HeaderMap,
    range: &Range<u64>,
    may_end: bool,
) -> Result<(Range<u64>, Option<u64>), Failure> {
    if status != StatusCode::PARTIAL_CONTENT {
        return Err(Failure::transient("the store ignored the range"));
    }
    let told = text(headers, &CONTENT_RANGE).unwrap_or_default();
    let (first, last, whole) = content_range(told)
        .ok_or_else(|| Failure::transient(format!("the store answered the range {told:?}")))?;
    let ends = may_end && whole == Some(last + 1) && last + 1 < range.end;
    if first == range.start && (last + 1 == range.end || ends) {
        Ok((first..last + 1, whole))
    } else if first == range.start && last + 1 < range.end {
        Err(changed(format!("the object ends at byte {}", last + 1)))
    } else {
        Err(Failure::transient(format!("the store answered another range, {told}")))
    }
}

/// First and last byte, and the size of the whole where it is told.
fn content_range(told: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, whole) = told.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let last = last.parse().ok().filter(|last| *last < u64::MAX)?;
    Some((first.parse().ok()?, last, whole.parse().ok()))
}

/// The ETag, if a condition may name it.
fn strong_version(headers: &HeaderMap) -> Option<String> {
    text(headers, &ETAG).filter(|etag| etag.starts_with('"')).map(str::to_owned)
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

pub(super) fn changed(reason: impl Into<String>) -> Failure {
    Failure::permanent(FetchErrorKind::Changed, reason)
        .hint("data must not be replaced while it is read; index it again")
}

impl Opened {
    /// Reads the body behind `bytes`, which holds what earlier attempts have read of it; keeps there
    /// what it got if it fails.
    pub(super) async fn collect(self, mut bytes: BytesMut) -> (BytesMut, Result<(), Failure>) {
        let in_flight = self.in_flight;
        let done = match self.body {
            Body::Empty => Ok(()),
            Body::File(file, range) => match file::read(file, range).await {
                Ok(read) => {
                    bytes = BytesMut::from(read);
                    Ok(())
                }
                Err(failure) => Err(failure),
            },
            Body::Stream(stream) => drain(stream, self.length, &mut bytes).await,
        };
        drop(in_flight);
        (bytes, done)
    }
}

async fn drain(
    mut stream: BoxStream<'static, Result<Bytes, HttpError>>,
    length: Option<u64>,
    bytes: &mut BytesMut,
) -> Result<(), Failure> {
    let limit = length.unwrap_or(Fetcher::UNTOLD);
    bytes.reserve(length.unwrap_or(0).min(RESERVED) as usize);
    let mut got = 0;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| Failure::of_way(&error))?;
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
        _ => Ok(()),
    }
}
