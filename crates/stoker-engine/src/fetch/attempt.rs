//! One attempt: a request and the head of its answer, which is checked against what was asked. Each
//! failure says what it means and whether another attempt may help.

use std::ops::Range;
use std::sync::Arc;

use object_store::client::{HttpRequest, HttpRequestBody, HttpResponse};
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, IF_MATCH, RANGE, TRANSFER_ENCODING,
};
use reqwest::{Method, StatusCode};

use crate::error::FetchErrorKind;
use crate::sample::{Location, Scheme};

use super::checksum::Checksum;
use super::failure::Failure;
use super::flight::InFlight;
use super::opened::{Body, Opened, SMALL};
use super::s3::Place;
use super::send::send;
use super::store::{Remote, Store};
use super::traffic::Size;
use super::{checksum, file, headers, pins};

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
    pub(super) fn head(object: Arc<Location>) -> Self {
        Self { head: true, ..Self::for_bytes(object, None) }
    }

    pub(super) fn for_bytes(object: Arc<Location>, range: Option<Range<u64>>) -> Self {
        Self { object, range, may_end: false, version: None, head: false, checksum: false }
    }

    /// Where a range ends that goes on to the end of the object, wherever that is.
    pub(super) const END: u64 = u64::MAX;

    /// The part that is asked for, if it is known and small.
    fn small_part(&self) -> Option<Range<u64>> {
        self.range.clone().filter(|range| !self.head && range.end - range.start <= SMALL)
    }

    /// The class of what is asked for.
    pub(super) fn size(&self) -> Size {
        let range = self.range.as_ref().filter(|range| range.end != Self::END);
        let length = |range: &Range<u64>| range.end - range.start;
        Size::of(if self.head { Some(0) } else { range.map(length) })
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
    let (file, info, read) = file::open(&ask.object.key, ask.small_part()).await?;
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
    let body = read.map_or(Body::File(file, range), Body::Read);
    let (version, request_id) = (info.version, None);
    let (has_end, checksum) = (true, None);
    Ok(Opened { version, length, has_end, whole, checksum, request_id, body, in_flight })
}

fn request(remote: &Remote, place: &Place, ask: &Ask) -> Result<HttpRequest, Failure> {
    let url = remote.url(place, &ask.object)?;
    let invalid = |what: &str| Failure::permanent(FetchErrorKind::Unconfigured, what);
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = if ask.head { Method::HEAD } else { Method::GET };
    *request.uri_mut() = url.as_str().parse().map_err(|_| invalid("the address is not a URL"))?;
    if let Some(Range { start, end }) = ask.range {
        let range = match end {
            Ask::END => format!("bytes={start}-"),
            _ => format!("bytes={start}-{}", end - 1),
        };
        let range = HeaderValue::try_from(range);
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
    if ask.object.scheme == Scheme::S3 && headers::is_error(&head.headers) {
        return Err(Failure::transient("the store sent an error in place of the object"));
    }
    if ask.head {
        // It may have been asked as GET of the first byte.
        let whole = match head.status {
            StatusCode::PARTIAL_CONTENT => content_range(&head.headers)?.2,
            _ => length,
        };
        let (length, body) = (whole, Body::Empty);
        let (has_end, checksum) = (true, None);
        let opened =
            Opened { version, length, has_end, whole, checksum, request_id, body, in_flight };
        return Ok(opened);
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
    // A body in chunks says which of them is the last.
    let has_end = length.is_some() || head.headers.contains_key(TRANSFER_ENCODING);
    let body = Body::Stream(body.bytes_stream());
    Ok(Opened { version, length, has_end, whole, checksum, request_id, body, in_flight })
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
    let (first, last, whole) = content_range(headers)?;
    let ends = may_end && whole == Some(last + 1) && last + 1 < range.end;
    if first == range.start && (last + 1 == range.end || ends) {
        Ok((first..last + 1, whole))
    } else if first == range.start && last + 1 < range.end {
        Err(changed(format!("the object ends at byte {}", last + 1)))
    } else {
        Err(Failure::transient(format!("the store answered another range, {first}-{last}")))
    }
}

/// The first and last byte of a ranged answer, and how many the whole object has where that is told.
fn content_range(headers: &HeaderMap) -> Result<(u64, u64, Option<u64>), Failure> {
    let told = headers::text(headers, &CONTENT_RANGE).unwrap_or_default();
    headers::content_range(told)
        .ok_or_else(|| Failure::transient(format!("the store answered the range {told:?}")))
}

pub(super) fn changed(reason: impl Into<String>) -> Failure {
    Failure::permanent(FetchErrorKind::Changed, reason)
        .hint("data must not be replaced while it is read; index it again")
}
