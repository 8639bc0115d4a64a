//! A question to a service that gives out credentials: one small answer, soon or not at all.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;

use crate::error::FetchErrorKind;

use super::super::failure::{Again, Failure};
use super::unconfigured;

/// Longest time that a service may take; the reads that wait ask again.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// Largest answer.
const MOST: usize = 1 << 20;

/// What a service said.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Answer {
    /// The answer as JSON; what is wrong with it is not quoted.
    pub(super) fn json<T: DeserializeOwned>(&self, who: &str) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let reason = format!("{who} gave no credentials (line {})", error.line());
            Failure::transient(reason)
        })
    }

    /// A bad answer of one who said nothing more than its status.
    pub(super) fn failure(&self, who: &str) -> Failure {
        let status = self.status.as_u16();
        let failure = Failure {
            status: Some(status),
            ..Failure::permanent(FetchErrorKind::Denied, format!("{who} refuses us"))
        };
        match status {
            429 | 503 => {
                Failure { kind: FetchErrorKind::Transient, again: Again::Later, ..failure }
            }
            500.. => Failure { kind: FetchErrorKind::Transient, again: Again::Soon, ..failure },
            _ => failure,
        }
    }
}

/// A request without a body.
pub(super) fn request(
    method: Method,
    url: &str,
    headers: &[(&'static str, &str)],
) -> Result<HttpRequest, Failure> {
    with_body(method, url, headers, String::new())
}

/// A request.
pub(super) fn with_body(
    method: Method,
    url: &str,
    headers: &[(&'static str, &str)],
    body: String,
) -> Result<HttpRequest, Failure> {
    let mut request = HttpRequest::new(HttpRequestBody::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = url
        .parse()
        .map_err(|_| unconfigured("the address of a service for credentials is not a URL"))?;
    for (name, value) in headers {
        let mut value = HeaderValue::try_from(*value)
            .map_err(|_| unconfigured("a token holds characters that no token has"))?;
        value.set_sensitive(true);
        request.headers_mut().insert(HeaderName::from_static(name), value);
    }
    Ok(request)
}

/// Asks.
pub(super) async fn ask(
    client: &HttpClient,
    request: HttpRequest,
    limit: Duration,
) -> Result<Answer, Failure> {
    let whole = async {
        let answer = client.execute(request).await.map_err(|error| Failure::of_way(&error))?;
        let (head, body) = answer.into_parts();
        let (mut stream, mut bytes) = (body.bytes_stream(), BytesMut::new());
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| Failure::of_way(&error))?);
            if bytes.len() > MOST {
                return Err(Failure::transient("the answer is too long"));
            }
        }
        Ok(Answer { status: head.status, body: bytes.freeze() })
    };
    let late = |_| Failure::transient(format!("no answer within {limit:?}"));
    tokio::time::timeout(limit, whole).await.map_err(late)?
}

/// Names the service in a failure of the way to it.
pub(super) fn of(who: &str, failure: Failure) -> Failure {
    Failure { reason: format!("{who}: {}", failure.reason), ..failure }
}
