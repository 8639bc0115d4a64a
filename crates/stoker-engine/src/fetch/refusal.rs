//! What a bad answer means: its kind, whether to ask again, and what the store says about it.
//!
//! S3, GCS and Azure send a little XML with a `<Code>` and a `<Message>`; these two are kept for the
//! operator. The rest of it may quote what was signed. A message that repeats some of what the
//! request said in confidence ([`Secrets`]) is not kept either.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use chrono::DateTime;
use futures::StreamExt;
use object_store::client::{HttpRequest, HttpResponse};
use percent_encoding::percent_decode_str;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderValue, LOCATION};

use crate::error::FetchErrorKind;
use crate::metrics::Cause;

use super::attempt::changed;
use super::failure::{Again, Failure};
use super::headers;
use super::s3::is_region;
use super::store::Remote;

/// How much of an error's text is read, and how long that may take.
const ERROR_BYTES: usize = 4096;
const ERROR_TIME: Duration = Duration::from_secs(1);
/// Longest message that is shown, in characters.
const LONGEST_MESSAGE: usize = 300;

/// Words of a request that nobody else may read: signatures, tokens, key ids.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Shorter words are everybody's: `s3`, `host`, parts of a region's name.
    const SHORTEST: usize = 8;

    /// The words of the headers and of the query that requests are signed with.
    pub(super) fn of(request: &HttpRequest) -> Self {
        let headers = request.headers();
        let headers = [headers.get(AUTHORIZATION), headers.get("x-amz-security-token")];
        let headers = headers.into_iter().flatten().filter_map(|value| value.to_str().ok());
        let query = request.uri().query().unwrap_or_default();
        // As it was sent, and as a store would quote it.
        let decoded = percent_decode_str(query).decode_utf8_lossy();
        Self::among(headers.chain([query, decoded.as_ref()]))
    }

    /// With words of the body.
    pub(super) fn and<'a>(self, texts: impl Iterator<Item = &'a str>) -> Self {
        let Self(mut words) = self;
        words.extend(Self::among(texts).0);
        Self(words)
    }

    fn among<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        // Whole, and word by word.
        let of = |text: &'a str| {
            std::iter::once(text).chain(text.split(|letter: char| !letter.is_alphanumeric()))
        };
        let words = texts.flat_map(of);
        Self(words.filter(|word| word.len() >= Self::SHORTEST).map(str::to_owned).collect())
    }

    fn in_text(&self, text: &str) -> bool {
        self.0.iter().any(|word| text.contains(word))
    }
}

/// What a bad answer means, and what else than giving up can be done about it.
pub(super) struct Refusal {
    pub(super) failure: Failure,
    /// Whether it is the credentials that it does not take, or no longer.
    pub(super) ended: bool,
    /// Where the bucket is.
    pub(super) region: Option<String>,
    /// Where the object is, as an address.
    pub(super) location: Option<String>,
    has_words: bool,
}

impl Refusal {
    /// Whether it says nothing about a request that may have been wrong.
    pub(super) fn is_wordless(&self) -> bool {
        let elsewhere = self.region.is_none() && self.location.is_none();
        !self.has_words
            && match self.failure.status {
                Some(301 | 307) => elsewhere,
                status => matches!(status, Some(400 | 401 | 403)),
            }
    }
}

/// What a bad answer means.
pub(super) async fn refusal(remote: &Remote, answer: HttpResponse, secrets: &Secrets) -> Refusal {
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
    let told = Told::read(&bytes, secrets);
    let mut failure = meaning(head.status, told.as_ref(), remote.is_unsigned());
    failure.request_id = headers::request_id(&head.headers);
    failure.wait = headers::wait(&head.headers);
    let header = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let text = String::from_utf8_lossy(&bytes);
    let regions = [header("x-amz-bucket-region"), element(&text, "Region")];
    let region = regions.into_iter().flatten().find(|region| is_region(region)).map(str::to_owned);
    let code = told.as_ref().map(|told| told.code.as_str());
    if let Some(region) = &region
        && failure.kind == FetchErrorKind::Unconfigured
    {
        failure = failure.hint(format!("the bucket is in {region}: set fetch.region"));
    }
    if code == Some("RequestTimeTooSkewed")
        && let Some(hint) = header("date").and_then(skew)
    {
        failure = failure.hint(hint);
    }
    let ended = ends(head.status, code, remote.is_bearer());
    let location = header(LOCATION.as_str()).filter(|_| head.status.is_redirection());
    let location = location.map(str::to_owned);
    Refusal { failure, ended, region, location, has_words: told.is_some() }
}

/// Whether others may be taken where these credentials are not.
fn ends(status: StatusCode, code: Option<&str>, bearer: bool) -> bool {
    let of_s3 = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId"];
    match status.as_u16() {
        400 | 403 => code.is_some_and(|code| of_s3.contains(&code)),
        401 => bearer,
        _ => false,
    }
}

/// How far this machine's clock is from the store's.
fn skew(date: &str) -> Option<String> {
    let theirs = DateTime::parse_from_rfc2822(date).ok()?.timestamp();
    #[expect(clippy::disallowed_methods, reason = "it is what the store objects to")]
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs() as i64;
    let (minutes, way) = match ours - theirs {
        late @ ..0 => (-late / 60, "behind"),
        early => (early / 60, "ahead of"),
    };
    Some(format!("set this machine's clock, which is {minutes} minutes {way} the store's"))
}

/// What the store says.
pub(super) struct Told {
    pub(super) code: String,
    message: Option<String>,
}

impl Told {
    pub(super) fn read(text: &[u8], secrets: &Secrets) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let code = element(&text, "Code")?;
        let plain = code.len() <= 64 && code.chars().all(|letter| letter.is_ascii_alphanumeric());
        let message = element(&text, "Message").map(sentence);
        let shown = |message: &String| !message.is_empty() && !secrets.in_text(message);
        plain.then(|| Self { code: code.to_owned(), message: message.filter(shown) })
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)?;
        self.message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))
    }
}

/// Reads what a store says, for fuzzing.
#[cfg(any(test, feature = "testing"))]
pub(super) fn look(bytes: &[u8]) {
    let told = Told::read(bytes, &Secrets(Vec::new()));
    let shown = told.map(|told| told.to_string()).unwrap_or_default();
    assert!(shown.chars().count() < LONGEST_MESSAGE + 80, "messages are cut");
}

/// The text of the first element of that name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// The first line of a message (Azure's go on with ids and times), without its full stop.
fn sentence(message: &str) -> String {
    const ENTITIES: [(&str, &str); 6] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    let line = message.trim().lines().next().unwrap_or_default();
    let line = ENTITIES.iter().fold(line.to_owned(), |line, (name, is)| line.replace(name, is));
    let shown = line.trim_end().trim_end_matches('.').chars().filter(|letter| !letter.is_control());
    shown.take(LONGEST_MESSAGE).collect()
}

fn meaning(status: StatusCode, told: Option<&Told>, unsigned: bool) -> Failure {
    use FetchErrorKind::{Changed, Denied, NotFound, Transient, Unconfigured};
    let (kind, again, what, hint) = match (status.as_u16(), told.map(|told| told.code.as_str())) {
        (404, Some("NoSuchBucket")) => {
            (NotFound, Again::Never, "no such bucket", Some("check the bucket and fetch.endpoint"))
        }
        (404 | 410, _) => (NotFound, Again::Never, "no such object", None),
        (400 | 403, Some("ExpiredToken")) => {
            (Denied, Again::Soon, "the credentials have expired", Some("renew them"))
        }
        (400, Some("InvalidToken" | "TokenRefreshRequired")) => {
            let hint = "check the session token: it must be of the same login as the keys";
            (Denied, Again::Never, "the store does not take the credentials", Some(hint))
        }
        (403, Some("InvalidAccessKeyId")) => {
            let hint = "check the key id, and that fetch.endpoint is the store that gave it";
            (Denied, Again::Never, "the store does not know the key", Some(hint))
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
        (302 | 307, _) => {
            let hint = "check fetch.endpoint";
            (Unconfigured, Again::Soon, "the store leads elsewhere for now", Some(hint))
        }
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
    let reason = told.map_or_else(|| what.to_owned(), |told| format!("{what} ({told})"));
    let cause = match (kind, status.as_u16()) {
        (Denied, _) => Cause::Credentials,
        (_, 429 | 503) => Cause::Busy,
        (_, 300..400) => Cause::Redirected,
        _ => Cause::Failed,
    };
    let hint = hint.map(str::to_owned);
    let status = Some(status.as_u16());
    Failure { again, status, hint, ..Failure::permanent(kind, reason).because(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, secrets: &[&str]) -> Option<String> {
        let secrets = Secrets::among(secrets.iter().copied());
        Told::read(text.as_bytes(), &secrets).map(|told| told.to_string())
    }

    #[test]
    fn code_and_message_are_kept_and_nothing_else() {
        let text = "<?xml version=\"1.0\"?><Error><Code>InvalidBucketName</Code><Message>The bucket \
                    &apos;A&amp;B&apos; is not valid.\nRequestId:1</Message><StringToSign>AWS4\
                    </StringToSign></Error>";
        let expected = "InvalidBucketName: The bucket 'A&B' is not valid";
        assert_eq!(told(text, &[]).as_deref(), Some(expected));
        let cut = "<Code>InvalidBucketName</Code><Message>The spec";
        assert_eq!(told(cut, &[]).as_deref(), Some("InvalidBucketName"));
        assert_eq!(told("<Code>a code of six words is none</Code>", &[]), None);
        assert_eq!(told("<html>no such page</html>", &[]), None);
    }

    #[test]
    fn a_message_that_repeats_a_secret_is_left_out() {
        let header = "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20250101/eu-west-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=0123456789abcdef";
        let query = "X-Amz-Signature=fedcba9876543210&X-Amz-Date=20250101T000000Z";
        let with = |message: &str| {
            let text = format!("<Code>AccessDenied</Code><Message>{message}</Message>");
            told(&text, &[header, query]).unwrap()
        };
        let harmless = "the region 'us-east-1' is wrong; expecting 'eu-west-1'";
        assert_eq!(with(harmless), format!("AccessDenied: {harmless}"));
        for secret in ["AKIAEXAMPLE", "0123456789abcdef", "fedcba9876543210"] {
            assert_eq!(with(&format!("who is {secret}?")), "AccessDenied");
        }
    }
}
