//! Where the images of a sample lie.
//!
//! A reference in the data is an address, an absolute path, a path below the media root, or the
//! image itself as a `data:` URI. The media root is what the recipe says, or the folder of the
//! shard, on whatever store that lies.
//!
//! Data must not reach what their author could not: no path leaves the root, neither a relative one
//! nor a local one (`file:` and absolute paths, common where LLaVA data lie on a local disk), and
//! local ones are read only if the source is a local file itself; `http(s)` is read only if the
//! recipe allows it, and then only from public hosts. The root is the recipe's word and may lie
//! anywhere. Links of the file system are followed: they are made by whoever has the folder (the hub's
//! cache is full of them), and no data can make one.
//!
//! Other buckets may be named, and are read with the credentials of the run: images often lie in
//! another one than their annotations. The request goes where the recipe's store is, whatever the
//! data say.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use url::Url;

use super::location::{below, outside, split_scheme, strip_prefix_ignoring_case};
use super::{flaw, public_host, quoted};
use crate::error::Flaw;
use crate::sample::{Extent, ImageRef, Location, Scheme};

/// Standard alphabet; padding may be missing, as many writers leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What references are resolved against.
#[derive(Clone, Debug)]
pub(super) struct Media {
    root: Location,
    local_files: bool,
    http: bool,
}

impl Media {
    /// Of rows that stand in that shard; without a root, its folder is one.
    pub(super) fn new(shard: &Location, root: Option<&Location>, http: bool) -> Self {
        let root = root.map_or_else(|| shard.folder(), Location::clone);
        Self { root, local_files: shard.scheme == Scheme::File, http }
    }

    /// What a reference in the data means.
    pub(super) fn resolve(&self, reference: &str) -> Result<ImageRef, Flaw> {
        if let Some(data) = strip_prefix_ignoring_case(reference, "data:") {
            return data_uri(data);
        }
        let location = match split_scheme(reference) {
            Some(("http" | "https", _)) => self.http(reference)?,
            Some(("file", _)) => self.local(reference)?,
            Some(_) => Location::parse_object(reference)?,
            None if reference.starts_with('/') => self.local(reference)?,
            None => self.root.join(reference)?,
        };
        Ok(ImageRef::Stored(Extent { object: Arc::new(location), range: None }))
    }

    fn local(&self, reference: &str) -> Result<Location, Flaw> {
        if !self.local_files {
            let reason =
                format!("{} is a local file, and the data are not local", quoted(reference));
            return Err(flaw("local-file", reason)
                .hint("write paths relative to dataset.media-root, without a leading slash"));
        }
        let file = Location::parse_object(reference)?;
        let below = (self.root.scheme == Scheme::File).then(|| below(&file.key, &self.root.key));
        match below.transpose()?.flatten() {
            Some(path) => self.root.join(&path),
            None => Err(outside(reference)),
        }
    }

    fn http(&self, reference: &str) -> Result<Location, Flaw> {
        let location = Location::parse(reference)?;
        let shown = quoted(&location.shown());
        if !self.http {
            return Err(flaw("http-off", format!("{shown} is an http(s) address"))
                .hint("set dataset.allow-http = true if the data may name any public host"));
        }
        let url = Url::parse(reference).expect("it was parsed above");
        match public_host::refusal(&url, reference) {
            Some(why) => Err(flaw("private-address", format!("{shown} is refused: {why}"))),
            None => Ok(location),
        }
    }
}

/// The bytes that a base64 text stands for.
pub(super) fn inline(text: &str) -> Result<ImageRef, Flaw> {
    let compact: String;
    let text = if text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        compact = text.split_ascii_whitespace().collect();
        &compact
    } else {
        text
    };
    let bytes = BASE64
        .decode(text)
        .map_err(|error| flaw("bad-base64", format!("an inline image is not base64: {error}")))?;
    if bytes.is_empty() {
        return Err(flaw("bad-base64", "an inline image is empty"));
    }
    Ok(ImageRef::Inline(Bytes::from(bytes)))
}

fn data_uri(data: &str) -> Result<ImageRef, Flaw> {
    let (kind, text) = data
        .split_once(',')
        .ok_or_else(|| flaw("bad-base64", "a `data:` URI has no comma before its data"))?;
    let base64 = kind.rsplit(';').next().is_some_and(|last| last.eq_ignore_ascii_case("base64"));
    if !base64 {
        let reason = format!("a `data:` URI of kind {} is not base64", quoted(kind));
        return Err(flaw("bad-base64", reason).hint("write data:image/…;base64,…"));
    }
    inline(text)
}
