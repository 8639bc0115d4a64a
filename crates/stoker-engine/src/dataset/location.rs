//! Addresses as people write them become [`Location`]s.
//!
//! - A key in a bucket (`s3`, `gs`, `az`) is taken as it stands, as the stores' own tools do: `%20`,
//!   `?` and `#` are part of the name. So is a bare path.
//! - `file:` URIs are percent-decoded (RFC 8089); `http(s)` URLs are normalised as browsers do it
//!   and stay encoded.
//! - A relative reference is a path, not a URL: it names the same file below any root, and never
//!   one above it. On an `http(s)` root it is percent-encoded.
//! - Nobody writes credentials into an address: they are refused.

use std::path::Path;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{flaw, quoted};
use crate::error::Flaw;
use crate::sample::{Location, Scheme};

impl Location {
    /// An address or path, absolute or relative to the current folder; the module says how it is
    /// read. Other spellings: `s3a`, `gcs`, `abfs` and `abfss`.
    pub fn parse(text: &str) -> Result<Self, Flaw> {
        if text.contains('\0') {
            return Err(flaw("bad-address", "an address holds a NUL byte"));
        }
        if text.is_empty() {
            return Err(flaw("bad-address", "an address is empty"));
        }
        match split_scheme(text) {
            Some(("file", rest)) => file_uri(rest),
            Some((name @ ("http" | "https"), _)) => http_url(name, text),
            Some(("s3" | "s3a", rest)) => bucket(Scheme::S3, rest),
            Some(("gs" | "gcs", rest)) => bucket(Scheme::Gs, rest),
            Some(("az" | "abfs" | "abfss", rest)) => bucket(Scheme::Az, rest),
            Some((name, _)) => {
                let reason = format!("addresses of kind {} are not read", quoted(name));
                Err(flaw("unsupported-scheme", reason)
                    .hint("use s3, gs, az, file, http(s) or a path"))
            }
            None => local_path(text),
        }
    }

    /// The same for the address of an object: one that names only a bucket or folder is refused.
    pub(super) fn parse_object(text: &str) -> Result<Self, Flaw> {
        let location = Self::parse(text)?;
        let http = matches!(location.scheme, Scheme::Http | Scheme::Https);
        if !http && (location.key.is_empty() || location.key.ends_with('/')) {
            return Err(names_a_folder(text));
        }
        Ok(location)
    }

    /// A local file.
    pub(super) fn of_file(path: &Path) -> Self {
        let key = path.to_string_lossy().into_owned();
        Self { scheme: Scheme::File, authority: String::new(), key }
    }

    /// The server, with its port, if it is one of the web.
    pub(crate) fn web_server(&self) -> Option<&str> {
        matches!(self.scheme, Scheme::Http | Scheme::Https).then_some(&*self.authority)
    }

    /// The folder that it lies in.
    #[must_use]
    pub fn folder(&self) -> Self {
        let path = match self.scheme {
            Scheme::Http | Scheme::Https => self.key.split('?').next().unwrap_or_default(),
            _ => &self.key,
        };
        let key = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// What a relative reference names below this folder.
    pub fn join(&self, relative: &str) -> Result<Self, Flaw> {
        let segments = segments(relative)?;
        if matches!(self.scheme, Scheme::Http | Scheme::Https) {
            let mut url = Url::parse(&self.to_string()).expect("it was parsed from a URL");
            url.set_query(None);
            url.path_segments_mut().expect("http URLs have paths").pop_if_empty().extend(segments);
            return Ok(Self { key: url.path()[1..].to_owned(), ..self.clone() });
        }
        let root = self.key.strip_suffix('/').unwrap_or(&self.key);
        let mut key = root.to_owned();
        for segment in segments {
            if !key.is_empty() || self.scheme == Scheme::File {
                key.push('/');
            }
            key.push_str(segment);
        }
        Ok(Self { key, ..self.clone() })
    }
}

/// The scheme (in lower case if it is one of ours) and what follows its slashes; `None` is a path.
pub(super) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    const KNOWN: [&str; 10] =
        ["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "file", "http", "https"];
    if let Some(rest) = strip_prefix_ignoring_case(text, "file:") {
        return Some(("file", rest.strip_prefix("//").unwrap_or(rest)));
    }
    let (name, rest) = text.split_once("://")?;
    let mut letters = name.bytes();
    let begins = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic());
    if !begins || !letters.all(|letter| letter.is_ascii_alphanumeric() || b"+-.".contains(&letter))
    {
        return None;
    }
    let known = KNOWN.into_iter().find(|known| known.eq_ignore_ascii_case(name));
    Some((known.unwrap_or(name), rest))
}

pub(super) fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

fn file_uri(rest: &str) -> Result<Location, Flaw> {
    let path = strip_prefix_ignoring_case(rest, "localhost").filter(|path| path.starts_with('/'));
    let path = path.unwrap_or(rest);
    if !path.starts_with('/') {
        let reason = format!("`file:` and {} have no absolute path", quoted(rest));
        return Err(flaw("bad-address", reason)
            .hint("an absolute path has three slashes: file:///folder/name"));
    }
    let key = percent_decode_str(path).decode_utf8().map_err(|_| {
        let reason = format!("{} is not UTF-8 when percent-decoded", quoted(rest));
        flaw("bad-address", reason)
    })?;
    if key.contains('\0') {
        return Err(flaw("bad-address", "an address holds a NUL byte"));
    }
    Ok(Location { scheme: Scheme::File, authority: String::new(), key: key.into_owned() })
}

fn local_path(text: &str) -> Result<Location, Flaw> {
    let path = std::path::absolute(text).map_err(|error| {
        flaw("bad-address", format!("{} has no absolute path: {error}", quoted(text)))
    })?;
    match path.to_str() {
        Some(key) => {
            let key = key.to_owned();
            Ok(Location { scheme: Scheme::File, authority: String::new(), key })
        }
        None => Err(flaw("bad-address", format!("the path of {} is not UTF-8", quoted(text)))),
    }
}

fn bucket(scheme: Scheme, rest: &str) -> Result<Location, Flaw> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') && scheme == Scheme::Az {
        let reason = format!("{} names a container and an account", quoted(bucket));
        return Err(flaw("bad-address", reason)
            .hint("write az://container/name; the account comes from the environment"));
    }
    if bucket.contains('@') {
        return Err(credentials());
    }
    // It becomes a part of a URL, where `..` or `?` would ask the store for something else.
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._$".contains(letter);
    if bucket.is_empty() || !bucket.chars().all(is_name) || [".", ".."].contains(&bucket) {
        let reason = format!("{} does not begin with the name of a bucket", quoted(rest));
        return Err(flaw("bad-address", reason).hint("write scheme://bucket/key"));
    }
    Ok(Location { scheme, authority: bucket.to_owned(), key: key.to_owned() })
}

fn http_url(scheme: &str, text: &str) -> Result<Location, Flaw> {
    let url = Url::parse(text)
        .map_err(|error| flaw("bad-address", format!("an {scheme} address is no URL: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(credentials());
    }
    let host = url.host_str().unwrap_or_default();
    let authority = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
    let query = url.query().map_or(String::new(), |query| format!("?{query}"));
    let key = format!("{}{query}", &url.path()[1..]);
    let scheme = if scheme == "http" { Scheme::Http } else { Scheme::Https };
    Ok(Location { scheme, authority, key })
}

/// What of an absolute path comes behind that of a folder, `.` and `..` resolved in both; `None` if it
/// lies elsewhere.
pub(super) fn below(path: &str, folder: &str) -> Result<Option<String>, Flaw> {
    let path = segments(path)?;
    let folder = if folder.trim_matches('/').is_empty() {
        Vec::new()
    } else {
        segments(folder.trim_end_matches('/'))?
    };
    let rest = path.strip_prefix(folder.as_slice()).filter(|rest| !rest.is_empty());
    Ok(rest.map(|rest| rest.join("/")))
}

/// What is said of a path that is not below the root.
pub(super) fn outside(path: &str) -> Flaw {
    flaw("outside-root", format!("{} leads out of the media root", quoted(path)))
        .hint("set dataset.media-root to a folder that holds all images")
}

fn names_a_folder(text: &str) -> Flaw {
    flaw("bad-address", format!("{} names a folder, not a file", quoted(text)))
}

fn credentials() -> Flaw {
    flaw("bad-address", "an address holds a user name or password")
        .hint("credentials come from the environment, never from an address")
}

/// The parts of a relative path, `.` and `..` resolved.
fn segments(relative: &str) -> Result<Vec<&str>, Flaw> {
    if relative.contains('\0') {
        return Err(flaw("bad-address", "a path holds a NUL byte"));
    }
    let mut segments = Vec::new();
    for segment in relative.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                let above = segments.pop();
                above.ok_or_else(|| outside(relative))?;
            }
            name => segments.push(name),
        }
    }
    if segments.is_empty() || relative.ends_with('/') {
        return Err(names_a_folder(relative));
    }
    Ok(segments)
}
