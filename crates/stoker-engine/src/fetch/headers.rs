//! What an answer's headers say beside what was asked for: its name, and when to come again.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName, RETRY_AFTER};

/// Names of requests in the words of S3, Azure and Google, for their support.
const IDS: [&str; 4] =
    ["x-amz-request-id", "x-amz-id-2", "x-ms-request-id", "x-guploader-uploadid"];
/// Longest name that is shown, in characters.
const LONGEST_ID: usize = 128;

/// What the store calls the request: what its operator can look it up by.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let told = IDS.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    let ids: Vec<&str> = told.filter(|id| is_id(id)).collect();
    (!ids.is_empty()).then(|| ids.join(" "))
}

fn is_id(id: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "+/=-_:.".contains(letter);
    !id.is_empty() && id.len() <= LONGEST_ID && id.chars().all(plain)
}

/// How long to wait, as the store says: AWS in milliseconds, others in seconds or as the time when
/// to come again. That is compared with the answer's own date, so no clock of ours is asked.
pub(super) fn wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name| text(name)?.parse::<u64>().ok();
    if let Some(millis) = number("x-amz-retry-after") {
        return Some(Duration::from_millis(millis));
    }
    if let Some(seconds) = number(RETRY_AFTER.as_str()) {
        return Some(Duration::from_secs(seconds));
    }
    let time = |name| httpdate::parse_http_date(text(name)?).ok();
    let then = time(RETRY_AFTER.as_str())?;
    Some(then.duration_since(time(DATE.as_str())?).unwrap_or_default())
}

/// Whether these are the headers of an error, whatever the status says: S3 may notice that it fails
/// when it has said 200 already. Objects have an entity tag; an object that holds such an error as its
/// bytes has one too.
pub(super) fn is_error(headers: &HeaderMap) -> bool {
    let is_xml = text(headers, &CONTENT_TYPE).is_some_and(|told| told.contains("xml"));
    is_xml && !headers.contains_key(ETAG)
}

/// First and last byte, and the size of the whole where it is told.
pub(super) fn content_range(told: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, whole) = told.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let last = last.parse().ok().filter(|last| *last < u64::MAX)?;
    Some((first.parse().ok()?, last, whole.parse().ok()))
}

/// The ETag, if a condition may name it.
pub(super) fn strong_version(headers: &HeaderMap) -> Option<String> {
    text(headers, &ETAG).filter(|etag| etag.starts_with('"')).map(str::to_owned)
}

pub(super) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        all.iter().map(pair).collect()
    }

    #[test]
    fn a_request_is_named_by_the_store_and_by_nothing_that_is_no_name() {
        let both = [("x-amz-request-id", "4442587FB7D0A2F9"), ("x-amz-id-2", "vlR7+a/b=")];
        assert_eq!(request_id(&headers(&both)).unwrap(), "4442587FB7D0A2F9 vlR7+a/b=");
        assert_eq!(request_id(&headers(&[("x-ms-request-id", "a-b")])).unwrap(), "a-b");
        assert_eq!(request_id(&headers(&[("x-amz-request-id", "see <b>here</b>")])), None);
        assert_eq!(request_id(&headers(&[])), None);
    }

    #[test]
    fn stores_say_when_to_come_again_in_three_ways() {
        let told = |all: &[_]| wait(&headers(all)).map(|wait| wait.as_millis());
        assert_eq!(told(&[("x-amz-retry-after", "1500"), ("retry-after", "9")]), Some(1500));
        assert_eq!(told(&[("retry-after", " 3 ")]), Some(3000));
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let after = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(told(&[date, after]), Some(30_000));
        assert_eq!(told(&[("retry-after", date.1), ("date", after.1)]), Some(0));
        for nonsense in ["soon", "-1", "1.5"] {
            assert_eq!(told(&[date, ("retry-after", nonsense)]), None);
        }
        assert_eq!(told(&[after]), None);
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn an_answer_without_a_tag_and_of_an_errors_type_is_an_error() {
        let xml = ("content-type", "application/xml");
        assert!(is_error(&headers(&[xml])));
        assert!(!is_error(&headers(&[xml, ("etag", "\"1\"")])));
        assert!(!is_error(&headers(&[("content-type", "image/jpeg")])));
        assert!(!is_error(&headers(&[])));
    }
}
