//! Where objects lie, and how their addresses are written.

use std::fmt;

/// Where an object lies. `Display` gives the URI back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The kind of store.
    pub scheme: Scheme,
    /// Bucket, container or host (with port); empty for files.
    pub authority: String,
    /// Key in the bucket as the store knows it (not percent-encoded), URL path with its query, or
    /// absolute path of a file.
    pub key: String,
}

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// A local file.
    File,
    /// Amazon S3 and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
    /// HTTP without encryption.
    Http,
    /// HTTPS.
    Https,
}

impl Scheme {
    /// The scheme as it stands in a URI.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The scheme of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::File, Self::S3, Self::Gs, Self::Az, Self::Http, Self::Https];
        all.into_iter().find(|scheme| scheme.as_str().eq_ignore_ascii_case(name))
    }
}

impl Location {
    /// Its address as it may be shown: without what may be secret in one of the web.
    pub fn shown(&self) -> String {
        shown_address(&self.to_string())
    }
}

/// An address as it may be shown: the query of a web address is often a signature, and its authority may
/// hold a password.
pub fn shown_address(address: &str) -> String {
    let web = [Scheme::Http, Scheme::Https];
    let Some((scheme, rest)) = address
        .split_once("://")
        .filter(|(name, _)| Scheme::parse(name).is_some_and(|it| web.contains(&it)))
    else {
        return address.to_owned();
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest[..end].split_at(rest[..end].find('/').unwrap_or(end));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let query = if end < rest.len() { "?…" } else { "" };
    format!("{scheme}://{host}{path}{query}")
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::File => write!(f, "{}", self.key),
            scheme => write!(f, "{}://{}/{}", scheme.as_str(), self.authority, self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_addresses_hold_no_signature_and_no_password() {
        let object = |scheme, authority: &str, key: &str| {
            Location { scheme, authority: authority.into(), key: key.into() }.shown()
        };
        let signed = object(Scheme::Https, "me:pass@host:1", "a/b@c.jpg?X-Amz-Signature=abc");
        assert_eq!(signed, "https://host:1/a/b@c.jpg?…");
        assert_eq!(object(Scheme::S3, "bucket", "what?.jpg"), "s3://bucket/what?.jpg");
        assert_eq!(object(Scheme::File, "", "/a?b://c"), "/a?b://c");
        assert_eq!(shown_address("HTTP://me@host?to=http://x/@"), "HTTP://host?…");
        assert_eq!(shown_address("https://host/a#b"), "https://host/a?…");
        assert_eq!(shown_address("folder/*.tar?"), "folder/*.tar?");
    }
}
