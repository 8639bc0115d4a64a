//! What a bad answer means: its kind, whether to ask again, and what the store says about it.
//!
//! S3, GCS and Azure send a little XML with a `<Code>` and a `<Message>`; these two are kept for the
//! operator. The rest of it may quote what was signed. A message that repeats some of what the
//! request said in confidence ([`Secrets`]) is not kept either.

use std::fmt;
use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt;
use object_store::client::{HttpRequest, HttpResponse};
use reqwest::StatusCode;
use reqwest::header::AUTHORIZATION;

use crate::error::FetchErrorKind;

use super::attempt::changed;
use super::failure::{Again, Failure};
use super::headers;
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
        Self::among(headers.chain(request.uri().query()))
    }

    fn among<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let words = texts.flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()));
        Self(words.filter(|word| word.len() >= Self::SHORTEST).map(str::to_owned).collect())
    }

    fn in_text(&self, text: &str) -> bool {
        self.0.iter().any(|word| text.contains(word))
    }
}

/// What a bad answer means.
pub(super) async fn refusal(remote: &Remote, answer: HttpResponse, secrets: &Secrets) -> Failure {
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
    if let Some(region) = head.headers.get("x-amz-bucket-region").and_then(|it| it.to_str().ok())
        && failure.kind == FetchErrorKind::Unconfigured
    {
        failure = failure.hint(format!("the bucket is in {region}: set fetch.region"));
    }
    failure
}

/// What the store says.
struct Told {
    code: String,
    message: Option<String>,
}

impl Told {
    fn read(text: &[u8], secrets: &Secrets) -> Option<Self> {
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
    let reason = told.map_or_else(|| what.to_owned(), |told| format!("{what} ({told})"));
    let hint = hint.map(str::to_owned);
    let status = Some(status.as_u16());
    Failure { kind, again, status, reason, hint, request_id: None, wait: None }
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
