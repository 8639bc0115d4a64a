//! One attempt: a request, its answer, its body.
//!
//! [`open`] ends with the headers, checked against what was asked; [`Opened::collect`] reads the
//! body and checks its length. Each failure says what it means and whether another attempt may help.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::client::{HttpError, HttpRequest, HttpRequestBody, HttpResponse};
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, RANGE,
};
use reqwest::{Method, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::FetchErrorKind;
use crate::metrics::{Metrics, Room, nanos};
use crate::sample::Location;

use super::failure::{Again, Failure};
use super::store::{Remote, Store};
use super::{Fetcher, ObjectInfo, file};

/// How much of an error's text is read, for its code, and how long that may take.
const ERROR_BYTES: usize = 4096;
const ERROR_TIME: Duration = Duration::from_secs(1);
/// Most memory that is reserved on a server's word; beyond it, memory grows as bytes come.
const RESERVED: u64 = 64 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) object: Arc<Location>,
    /// `None` is all of it.
    pub(super) range: Option<Range<u64>>,
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
    _slot: OwnedSemaphorePermit,
}

impl InFlight {
    pub(super) fn begin(metrics: &Arc<Metrics>, slot: OwnedSemaphorePermit) -> Self {
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
            let answer = remote.client.execute(request).await;
            let answer = answer.map_err(|error| Failure::of_way(&error))?;
            if !answer.status().is_success() {
                return Err(refusal(remote, answer).await);
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
    let range = ask.range.unwrap_or(0..info.size);
    if range.end > info.size {
        return Err(changed(format!("the file has {} bytes", info.size)));
    }
    let length = Some(range.end - range.start);
    Ok(Opened { version: info.version, length, body: Body::File(file, range), in_flight })
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
        return Ok(Opened { version, length, body: Body::Empty, in_flight });
    }
    let length = match &ask.range {
        None => length,
        Some(range) => {
            check_range(head.status, &head.headers, range)?;
            Some(range.end - range.start)
        }
    };
    Ok(Opened { version, length, body: Body::Stream(body.bytes_stream()), in_flight })
}

/// A ranged answer must say that it is one, and the right one.
fn check_range(status: StatusCode, headers: &HeaderMap, range: &Range<u64>) -> Result<(), Failure> {
    if status != StatusCode::PARTIAL_CONTENT {
        return Err(Failure::transient("the store ignored the range"));
    }
    let told = text(headers, &CONTENT_RANGE).unwrap_or_default();
    let (first, last) = content_range(told)
        .ok_or_else(|| Failure::transient(format!("the store answered the range {told:?}")))?;
    if first == range.start && last + 1 == range.end {
        Ok(())
    } else if first == range.start && last + 1 < range.end {
        Err(changed(format!("the object ends at byte {}", last + 1)))
    } else {
        Err(Failure::transient(format!("the store answered another range, {told}")))
    }
}

/// First and last byte.
fn content_range(told: &str) -> Option<(u64, u64)> {
    let (range, _size) = told.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok().filter(|last| *last < u64::MAX)?))
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

/// What a bad answer means.
async fn refusal(remote: &Remote, answer: HttpResponse) -> Failure {
    let (head, body) = answer.into_parts();
    let mut stream = body.bytes_stream();
    let mut bytes = BytesMut::new();
    let reading = async {
        while let Some(Ok(chunk)) = stream.next().await {
            bytes.extend_from_slice(&chunk[..chunk.len().min(ERROR_BYTES - bytes.len())]);
            if bytes.len() == ERROR_BYTES {
                break;
            }
        }
    };
    // A text that does not come is not waited for: the status says most of it.
    tokio::time::timeout(ERROR_TIME, reading).await.unwrap_or_default();
    let code = error_code(&bytes);
    let mut failure = meaning(head.status, code.as_deref(), remote.is_unsigned());
    if let Some(region) = head.headers.get("x-amz-bucket-region").and_then(|it| it.to_str().ok())
        && failure.kind == FetchErrorKind::Unconfigured
    {
        failure = failure.hint(format!("the bucket is in {region}: set fetch.region"));
    }
    failure
}

/// The `<Code>` of an S3, GCS or Azure error. Nothing else is kept of its text, as it may quote
/// what was signed.
fn error_code(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let (code, _) = text.split_once("<Code>")?.1.split_once("</Code>")?;
    let plain = code.len() <= 64 && code.chars().all(|letter| letter.is_ascii_alphanumeric());
    plain.then(|| code.to_owned())
}

fn meaning(status: StatusCode, code: Option<&str>, unsigned: bool) -> Failure {
    use FetchErrorKind::{Changed, Denied, NotFound, Transient, Unconfigured};
    let (kind, again, what, hint) = match (status.as_u16(), code) {
        (404, Some("NoSuchBucket")) => {
            (NotFound, Again::Never, "no such bucket", Some("check the bucket and fetch.endpoint"))
        }
        (404 | 410, _) => (NotFound, Again::Never, "no such object", None),
        (400 | 403, Some("ExpiredToken")) => {
            (Denied, Again::Soon, "the credentials have expired", Some("renew them"))
        }
        (401 | 403, _) if unsigned => {
            let hint = "requests go unsigned: set fetch.anonymous = false and give credentials";
            (Denied, Again::Never, "the store refuses us", Some(hint))
        }
        (401 | 403, Some("SignatureDoesNotMatch")) => {
            (Denied, Again::Never, "the store refuses us", Some("check the secret key"))
        }
        (401 | 403, Some("RequestTimeTooSkewed")) => {
            (Denied, Again::Never, "the store refuses us", Some("set this machine's clock"))
        }
        (401 | 403, _) => {
            let hint = "check the credentials and what they may read";
            (Denied, Again::Never, "the store refuses us", Some(hint))
        }
        (412, _) => return Failure { status: Some(412), ..changed("the object was replaced") },
        (416, _) => (Changed, Again::Never, "the object ends before the range", None),
        (429 | 503, _) => {
            (Transient, Again::Later, "the store is busy", Some("lower fetch.concurrency"))
        }
        (400, Some("RequestTimeout")) | (408 | 500.., _) => {
            (Transient, Again::Soon, "the store failed", None)
        }
        _ => {
            let hint = "check fetch.endpoint and fetch.region";
            (Unconfigured, Again::Never, "the store does not take the request", Some(hint))
        }
    };
    let reason = code.map_or_else(|| what.to_owned(), |code| format!("{what} ({code})"));
    let hint = hint.map(str::to_owned);
    Failure { kind, again, status: Some(status.as_u16()), reason, hint }
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
