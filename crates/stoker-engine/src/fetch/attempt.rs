//! One attempt: a request, its answer, its body.
//!
//! [`open`] ends with the headers, checked against what was asked; [`Opened::collect`] reads the
//! body and checks its length. Each failure says what it means and whether another attempt may help.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::client::{HttpError, HttpRequest, HttpRequestBody, HttpResponse};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, IF_MATCH, RANGE};
use reqwest::{Method, StatusCode};
use tokio::time::{Duration, Instant, timeout_at};

use crate::error::FetchErrorKind;
use crate::sample::{Location, Scheme};

use super::checksum::Checksum;
use super::failure::Failure;
use super::in_flight::InFlight;
use super::s3::Place;
use super::send::send;
use super::store::{Remote, Store};
use super::traffic::Size;
use super::watch::{Look, Watch};
use super::{Fetcher, ObjectInfo, checksum, file, headers, pins, split};

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
    /// Whether the store is to tell the checksum of all bytes.
    pub(super) checksum: bool,
}

impl Ask {
    /// The class of what is asked for.
    pub(super) fn size(&self) -> Size {
        let length = |range: &Range<u64>| range.end - range.start;
        Size::of(if self.head { Some(0) } else { self.range.as_ref().map(length) })
    }
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Without a byte.
    pub(super) silence: Duration,
    /// At most until then.
    pub(super) until: Instant,
}

/// An answer whose body is not read yet.
pub(super) struct Opened {
    /// The object's version, where the store tells it.
    pub(super) version: Option<String>,
    /// Bytes of the body; `None` where the server does not tell.
    pub(super) length: Option<u64>,
    /// Bytes of the whole object, where a part of it came and the server tells.
    pub(super) whole: Option<u64>,
    /// What the store tells of all bytes, where it was asked to.
    pub(super) checksum: Option<Checksum>,
    /// What the store calls the request.
    request_id: Option<String>,
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

impl Opened {
    /// The first bytes of the body alone; the rest is not read.
    pub(super) fn first(mut self, length: u64) -> Self {
        self.length = Some(length);
        self.body = match self.body {
            Body::Stream(stream) => Body::Stream(split::first(stream, length)),
            Body::File(file, range) => Body::File(file, range.start..range.start + length),
            Body::Empty => Body::Empty,
        };
        self
    }

    /// How long ago it was asked for.
    pub(super) fn age(&self) -> Duration {
        self.in_flight.since.elapsed()
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
            let make = |place: &Place| request(remote, place, &ask);
            let answer = send(remote, &in_flight, ask.size(), make).await?;
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
    let (version, request_id, body) = (info.version, None, Body::File(file, range));
    Ok(Opened { version, length, whole, checksum: None, request_id, body, in_flight })
}

fn request(remote: &Remote, place: &Place, ask: &Ask) -> Result<HttpRequest, Failure> {
    let url = remote.url(place, &ask.object)?;
    let invalid = |what: &str| Failure::permanent(FetchErrorKind::Unconfigured, what);
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = if ask.head { Method::HEAD } else { Method::GET };
    *request.uri_mut() = url.as_str().parse().map_err(|_| invalid("the address is not a URL"))?;
    if let Some(Range { start, end }) = ask.range {
        let range = HeaderValue::try_from(format!("bytes={start}-{}", end - 1));
        request.headers_mut().insert(RANGE, range.map_err(|_| invalid("not a range"))?);
    }
    if ask.checksum {
        let (name, value) = checksum::asking();
        request.headers_mut().insert(name, value);
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
    let length =
        headers::text(&head.headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let version = headers::strong_version(&head.headers);
    let request_id = headers::request_id(&head.headers);
    if ask.version.is_some() && version.is_some() && version != ask.version {
        let before = ask.version.as_deref().unwrap_or_default();
        return Err(pins::replaced(before, version.as_deref()));
    }
    if ask.head {
        let (whole, body) = (length, Body::Empty);
        let checksum = None;
        return Ok(Opened { version, length, whole, checksum, request_id, body, in_flight });
    }
    if ask.object.scheme == Scheme::S3 && headers::is_error(&head.headers) {
        return Err(Failure::transient("the store sent an error in place of the object"));
    }
    let checksum = Checksum::told(&head.headers).filter(|_| ask.checksum);
    let (length, whole) = match &ask.range {
        None => (length, length),
        // A server that gives all of it instead gives the beginning too.
        Some(_) if ask.may_end && head.status == StatusCode::OK => (length, length),
        Some(range) => {
            let (range, whole) = check_range(head.status, &head.headers, range, ask.may_end)?;
            (Some(range.end - range.start), whole)
        }
    };
    let body = Body::Stream(body.bytes_stream());
    Ok(Opened { version, length, whole, checksum, request_id, body, in_flight })
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
    let told = headers::text(headers, &CONTENT_RANGE).unwrap_or_default();
    let (first, last, whole) = headers::content_range(told)
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
    let mut watch = Watch::new(begin, limits.silence, traffic.usual_rate());
    let mut got = 0;
    loop {
        let until = watch.next().min(limits.until);
        let Ok(next) = timeout_at(until, stream.next()).await else {
            let now = Instant::now();
            match watch.look(now) {
                _ if now >= limits.until => {
                    return Err(Failure::transient(format!("{got} bytes came in time")));
                }
                Look::Silent => return Err(in_flight.silent()),
                Look::Drips(rate) if traffic.late() => {
                    let reason = format!("the body came at {rate:.0} bytes a second");
                    return Err(in_flight.stalled(reason));
                }
                Look::Drips(_) | Look::Fine => continue,
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
            traffic.came(got, begin.elapsed());
            Ok(())
        }
    }
}
