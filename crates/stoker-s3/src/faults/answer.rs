//! Answers that the store gives in place of a good one, in the words of S3.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode, Uri};
use s3s::Body;
use s3s::dto::{Timestamp, TimestampFormat};

use super::rule::{Fault, Operation};

/// What the store says of such a fault, if it is one that the store says.
pub(super) fn answer(fault: &Fault, uri: &Uri, operation: Operation) -> Option<Response<Body>> {
    let mut answer = match fault {
        Fault::Status { status, retry_after, as_date } => {
            let (code, message) = words(*status);
            let mut answer = error(*status, code, message, "");
            if let Some(seconds) = retry_after {
                let wait = Duration::from_secs(*seconds);
                let said = if *as_date { date(wait) } else { seconds.to_string() };
                answer.headers_mut().insert(RETRY_AFTER, header(&said));
            }
            answer
        }
        Fault::ErrorBody {} => error(200, "InternalError", words(500).1, ""),
        Fault::Expired { status } => {
            let message = "The provided token has expired.";
            error(status.unwrap_or(400), "ExpiredToken", message, "")
        }
        Fault::Redirect { status, region, endpoint } => {
            redirect(status.unwrap_or(301), region.as_deref(), endpoint.as_deref(), uri)
        }
        _ => return None,
    };
    if operation == Operation::Head {
        *answer.body_mut() = Body::empty();
    }
    Some(answer)
}

/// What a store says that is asked for too much.
pub(super) fn slow_down() -> Response<Body> {
    let (code, message) = words(503);
    error(503, code, message, "")
}

fn words(status: u16) -> (&'static str, &'static str) {
    match status {
        429 => ("TooManyRequests", "Please reduce your request rate."),
        503 => ("SlowDown", "Please reduce your request rate."),
        500.. => ("InternalError", "We encountered an internal error. Please try again."),
        408 => ("RequestTimeout", "Your socket connection was not read from in time."),
        403 => ("AccessDenied", "Access Denied"),
        404 => ("NoSuchKey", "The specified key does not exist."),
        _ => ("BadRequest", "Bad Request"),
    }
}

/// An error document; `more` are further elements.
fn error(status: u16, code: &str, message: &str, more: &str) -> Response<Body> {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    write!(text, "<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>")
        .expect("a string takes all");
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = StatusCode::from_u16(status).expect("scripts are checked");
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    answer
}

fn redirect(
    status: u16,
    region: Option<&str>,
    endpoint: Option<&str>,
    uri: &Uri,
) -> Response<Body> {
    let code = if status == 301 { "PermanentRedirect" } else { "TemporaryRedirect" };
    let message = "The bucket you are attempting to access must be addressed using the specified \
                   endpoint. Please send all future requests to this endpoint.";
    let host = endpoint.map(|endpoint| endpoint.split("//").last().unwrap_or_default());
    let more = host.map_or_else(String::new, |host| format!("<Endpoint>{host}</Endpoint>"));
    let mut answer = error(status, code, message, &more);
    if let Some(region) = region {
        answer.headers_mut().insert("x-amz-bucket-region", header(region));
    }
    if let Some(endpoint) = endpoint {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let location = format!("{}{path}", endpoint.trim_end_matches('/'));
        answer.headers_mut().insert(LOCATION, header(&location));
    }
    answer
}

/// So long from now, as HTTP writes dates.
#[expect(clippy::disallowed_methods, reason = "Retry-After may be a wall-clock time")]
fn date(from_now: Duration) -> String {
    let mut text = Vec::new();
    Timestamp::from(SystemTime::now() + from_now)
        .format(TimestampFormat::HttpDate, &mut text)
        .expect("it is a time of this age, and memory takes all");
    String::from_utf8(text).expect("dates are ASCII")
}

/// A script may hold what no header can: then the header is empty.
fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}
