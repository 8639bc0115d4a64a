//! What a request asks for, as far as its head tells before anybody has looked at it; and what it
//! takes along to the store's operations.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::header::{HeaderMap, RANGE};
use hyper::http::{Extensions, Method, request};
use percent_encoding::percent_decode_str;

use super::injector::Injector;
use super::rule::{Fault, Operation};

/// A request as rules see it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) operation: Operation,
    /// `bucket/key`, of a listing `bucket/prefix`.
    pub(super) path: String,
    /// What `Range` says behind `bytes=`.
    pub(super) range: Option<String>,
    /// The token of a page behind the first.
    pub(super) page: Option<String>,
    pub(super) headers: HeaderMap,
}

impl Asked {
    pub(super) fn of(head: &request::Parts) -> Self {
        let path = decode(head.uri.path().trim_start_matches('/')).into_owned();
        let query = |name: &str| {
            let pairs = head.uri.query()?.split('&');
            let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            let (_, value) = pairs.find(|(found, _)| *found == name)?;
            // A space may come as a plus.
            Some(decode(&value.replace('+', " ")).into_owned())
        };
        let has_key = path.split_once('/').is_some_and(|(_, key)| !key.is_empty());
        let operation = match head.method {
            Method::GET if has_key => Operation::Get,
            Method::GET if query("list-type").is_some() => Operation::List,
            Method::HEAD if has_key => Operation::Head,
            Method::PUT if has_key => Operation::Put,
            _ => Operation::Other,
        };
        let range = head.headers.get(RANGE).and_then(|range| range.to_str().ok());
        let range = range.and_then(|range| range.strip_prefix("bytes=")).map(str::to_owned);
        let (path, page) = if operation == Operation::List {
            let prefix = query("prefix").unwrap_or_default();
            (format!("{}/{prefix}", path.trim_end_matches('/')), query("continuation-token"))
        } else {
            (path, None)
        };
        Self { operation, path, range, page, headers: head.headers.clone() }
    }

    /// The byte that the range begins with; of the last so many bytes, it is not known.
    pub(super) fn first_byte(&self) -> Option<u64> {
        let Some(range) = &self.range else { return Some(0) };
        range.split('-').next().and_then(|first| first.parse().ok())
    }

    /// A name of the same thing for each request that asks for it.
    pub(super) fn target(&self) -> String {
        let Self { operation, path, range, page, .. } = self;
        let part = range.as_ref().or(page.as_ref()).map_or("", String::as_str);
        format!("{operation}\n{path}\n{part}")
    }
}

fn decode(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// What a request takes along to the operation that answers it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meeting {
    pub(super) injector: Option<Arc<Injector>>,
    pub(super) fault: Option<Fault>,
}

impl Meeting {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Whether all of the object is to be sent in place of a range.
    pub(crate) fn ignores_range(&self) -> bool {
        self.happens(&Fault::WholeObject {})
    }

    /// Whether the page before is to be sent in place of the one that is asked for.
    pub(crate) fn repeats_page(&self) -> bool {
        self.happens(&Fault::RepeatPage {})
    }

    /// The ETag of an object, which may have been replaced.
    pub(crate) fn etag(&self, bucket: &str, key: &str, etag: String) -> String {
        match &self.injector {
            Some(injector) if injector.is_replaced(&format!("{bucket}/{key}")) => {
                format!("{etag}-replaced")
            }
            _ => etag,
        }
    }

    /// Most entries of a page.
    pub(crate) fn page_size(&self) -> Option<usize> {
        self.injector.as_ref().and_then(|injector| injector.faults().page_size)
    }

    fn happens(&self, fault: &Fault) -> bool {
        let happens = self.fault.as_ref() == Some(fault);
        if let (true, Some(injector)) = (happens, &self.injector) {
            injector.count(&fault.name());
        }
        happens
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn asked(method: Method, uri: &str, range: Option<&str>) -> Asked {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        Asked::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn what_is_asked_for_is_told_by_the_head() {
        let get = asked(Method::GET, "/b/a%20b%2F%C3%BC//c", Some("bytes=10-19"));
        assert_eq!((get.operation, get.path.as_str()), (Operation::Get, "b/a b/ü//c"));
        assert_eq!((get.range.as_deref(), get.first_byte()), (Some("10-19"), Some(10)));
        assert_eq!(asked(Method::GET, "/b/k", Some("bytes=-5")).first_byte(), None);
        assert_eq!(asked(Method::GET, "/b/k", None).first_byte(), Some(0));
        assert_eq!(asked(Method::HEAD, "/b/k", None).operation, Operation::Head);
        assert_eq!(asked(Method::PUT, "/b/k?x-id=PutObject", None).operation, Operation::Put);
        assert_eq!(asked(Method::PUT, "/b", None).operation, Operation::Other);
        let list = asked(Method::GET, "/b?list-type=2&prefix=d+1%2F&continuation-token=_41", None);
        assert_eq!((list.operation, list.path.as_str()), (Operation::List, "b/d 1/"));
        assert_eq!(list.page.as_deref(), Some("_41"));
        let first = asked(Method::GET, "/b/?list-type=2&prefix=d%201%2F", None);
        assert_eq!((first.path, first.page), (list.path.clone(), None));
        assert_ne!(list.target(), get.target());
    }
}
