//! What a store has below a prefix, page by page.
//!
//! S3 and Google's store speak ListObjectsV2, Azure a dialect of its own; each page is asked for
//! with the client, the signature, the attempts and the words of all other requests. Sizes and
//! versions come with the names, so that ten thousand shards cost ten requests and not ten thousand.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::client::{HttpRequest, HttpRequestBody};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use serde::Deserialize;
use tokio::time::timeout_at;

use crate::error::{FetchErrorKind, Result};
use crate::metrics::Cause;
use crate::sample::{Location, Scheme};

use super::failure::{Failure, Tries};
use super::flight::InFlight;
use super::request::pause;
use super::s3::Place;
use super::send::send;
use super::store::Store;
use super::traffic::Size;
use super::{ObjectInfo, Room, Urgency};

/// Largest page: a thousand names of a kilobyte each, many times over.
const PAGE: usize = 16 << 20;
/// What stays as it is in a query.
const QUERY: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An object and what the store knows of it.
pub(super) type Listed = (Location, ObjectInfo);

/// All objects whose keys begin as the prefix does, in the order of the store.
pub(super) async fn list(room: &Room, urgency: Urgency, prefix: &Location) -> Result<Vec<Listed>> {
    let prefix = Arc::new(prefix.clone());
    let mut tries = Tries::new(&room.config, urgency, &prefix, None);
    let (mut objects, mut token) = (Vec::new(), None);
    loop {
        let store = room.store(&prefix).map_err(|failure| tries.refused(failure))?;
        let traffic = room.traffic(&prefix);
        let slot = traffic.slot(tries.urgency(), tries.coming()).await?;
        let limits = room.limits(&mut tries);
        let in_flight = InFlight::begin(Arc::clone(&room.metrics), traffic, slot, limits);
        let asked = page(store, Arc::clone(&prefix), token.clone(), in_flight);
        let asked = async move {
            let late = || Failure::transient("no answer came in time").because(Cause::Stalled);
            timeout_at(limits.until, asked).await.unwrap_or_else(|_| Err(late()))
        };
        match room.there(asked).await? {
            // The page before once more: to stop here would lose what comes behind it.
            Ok(page) if page.next.is_some() && page.next == token => {
                let failure = Failure::transient("the store repeats a page of the listing");
                pause(room, &mut tries, failure).await?;
            }
            Ok(page) => {
                objects.extend(page.objects);
                tries.renew();
                match page.next {
                    Some(next) => token = Some(next),
                    None => return Ok(objects),
                }
            }
            Err(failure) => pause(room, &mut tries, failure).await?,
        }
    }
}

/// One answer.
struct Page {
    objects: Vec<Listed>,
    /// What to ask for the next one with.
    next: Option<String>,
}

async fn page(
    store: Arc<Store>,
    prefix: Arc<Location>,
    token: Option<String>,
    in_flight: InFlight,
) -> Result<Page, Failure> {
    let Store::Remote(remote) = &*store else { return Err(no_listings()) };
    let make = |place: &Place| {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url(place, &prefix, token.as_deref())?
            .as_str()
            .parse()
            .map_err(|_| Failure::permanent(FetchErrorKind::Unconfigured, "not an address"))?;
        Ok(request)
    };
    let answer = send(remote, &in_flight, Size::Small, make).await?;
    let mut stream = answer.into_parts().1.bytes_stream();
    let mut bytes = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| Failure::of_way(&error))?);
        if bytes.len() > PAGE {
            let reason = format!("a page of the listing is larger than {PAGE} bytes");
            return Err(Failure::permanent(FetchErrorKind::TooLarge, reason));
        }
    }
    read(&bytes.freeze(), &prefix)
}

fn no_listings() -> Failure {
    Failure::permanent(FetchErrorKind::Forbidden, "web servers and files have no listings")
        .hint("name the shards one by one, or with braces such as {000..127}")
}

/// The address of a page.
fn url(place: &Place, prefix: &Location, token: Option<&str>) -> Result<Url, Failure> {
    if matches!(prefix.scheme, Scheme::Http | Scheme::Https) {
        return Err(no_listings());
    }
    let base = &place.base;
    let (fixed, marker) = match prefix.scheme {
        Scheme::Az => ("restype=container&comp=list", "marker"),
        _ => ("list-type=2", "continuation-token"),
    };
    let mut url = format!("{base}?{fixed}&prefix={}", utf8_percent_encode(&prefix.key, &QUERY));
    if let Some(token) = token {
        url.extend(["&", marker, "="]);
        url.extend(utf8_percent_encode(token, &QUERY));
    }
    url.parse().map_err(|error| {
        let reason = format!("the endpoint is not a URL ({error})");
        Failure::permanent(FetchErrorKind::Unconfigured, reason)
    })
}

/// `ListBucketResult` of S3 and Google.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Bucket {
    #[serde(default)]
    contents: Vec<Content>,
    next_continuation_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    key: String,
    size: u64,
    #[serde(rename = "ETag")]
    etag: Option<String>,
}

/// `EnumerationResults` of Azure.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    blobs: Blobs,
    next_marker: Option<String>,
}

#[derive(Deserialize)]
struct Blobs {
    #[serde(rename = "Blob", default)]
    blob: Vec<Blob>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Blob {
    name: String,
    properties: Properties,
}

#[derive(Deserialize)]
struct Properties {
    #[serde(rename = "Content-Length")]
    size: u64,
    #[serde(rename = "Etag")]
    etag: Option<String>,
}

fn read(bytes: &Bytes, prefix: &Location) -> Result<Page, Failure> {
    let unread = |error: &dyn std::fmt::Display| {
        Failure::transient(format!("the listing can't be read ({error})"))
    };
    let text = str::from_utf8(bytes).map_err(|error| unread(&error))?;
    let (found, next): (Vec<_>, _) = if prefix.scheme == Scheme::Az {
        let page: Container = quick_xml::de::from_str(text).map_err(|error| unread(&error))?;
        let found = page.blobs.blob.into_iter();
        let found = found.map(|it| (it.name, it.properties.size, it.properties.etag));
        (found.collect(), page.next_marker)
    } else {
        let page: Bucket = quick_xml::de::from_str(text).map_err(|error| unread(&error))?;
        let found = page.contents.into_iter().map(|it| (it.key, it.size, it.etag));
        (found.collect(), page.next_continuation_token)
    };
    let objects = found.into_iter().map(|(key, size, etag)| {
        let version = etag.and_then(|etag| strong(&etag));
        (Location { key, ..prefix.clone() }, ObjectInfo { size, version })
    });
    Ok(Page { objects: objects.collect(), next: next.filter(|next| !next.is_empty()) })
}

/// Reads a page, for fuzzing.
#[cfg(any(test, feature = "testing"))]
pub(super) fn look(bytes: &Bytes, prefix: &Location) {
    drop(read(bytes, prefix));
}

/// The tag as the header of an answer has it: in quotes. A weak one is none.
fn strong(etag: &str) -> Option<String> {
    match etag {
        _ if etag.starts_with("W/") => None,
        _ if etag.starts_with('"') => Some(etag.to_owned()),
        _ => Some(format!("\"{etag}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(scheme: Scheme, text: &'static str) -> Page {
        let prefix = Location { scheme, authority: "data".into(), key: "shards/".into() };
        read(&Bytes::from_static(text.as_bytes()), &prefix).unwrap()
    }

    #[test]
    fn a_page_of_azure_is_read_as_one_of_s3_is() {
        let azure = parsed(
            Scheme::Az,
            "<?xml version=\"1.0\"?><EnumerationResults><Prefix>shards/</Prefix><Blobs><Blob>\
             <Name>shards/a &amp; b.tar</Name><Properties><Etag>0x8D1</Etag><Content-Length>7\
             </Content-Length><Content-Type>x</Content-Type></Properties></Blob><BlobPrefix><Name>\
             shards/x/</Name></BlobPrefix><Blob><Name>shards/c.tar</Name><Properties>\
             <Content-Length>8</Content-Length></Properties></Blob></Blobs><NextMarker>2!x\
             </NextMarker></EnumerationResults>",
        );
        let s3 = parsed(
            Scheme::S3,
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>data</Name>\
             <Contents><Key>shards/a &amp; b.tar</Key><ETag>&quot;0x8D1&quot;</ETag><Size>7</Size>\
             <StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>shards/x/\
             </Prefix></CommonPrefixes><Contents><Key>shards/c.tar</Key><Size>8</Size></Contents>\
             <NextContinuationToken>2!x</NextContinuationToken></ListBucketResult>",
        );
        for (scheme, page) in [(Scheme::Az, azure), (Scheme::S3, s3)] {
            assert_eq!(page.next.as_deref(), Some("2!x"));
            let location =
                |key: &str| Location { scheme, authority: "data".into(), key: key.into() };
            let info = |size, version: Option<&str>| ObjectInfo {
                size,
                version: version.map(str::to_owned),
            };
            assert_eq!(
                page.objects,
                [
                    (location("shards/a & b.tar"), info(7, Some("\"0x8D1\""))),
                    (location("shards/c.tar"), info(8, None)),
                ]
            );
        }
    }

    #[test]
    fn the_last_page_has_no_next_and_an_empty_one_no_objects() {
        let azure = "<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>";
        let s3 = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        for (scheme, text) in [(Scheme::Az, azure), (Scheme::Gs, s3)] {
            let page = parsed(scheme, text);
            assert_eq!((page.objects.len(), page.next), (0, None));
        }
    }
}
