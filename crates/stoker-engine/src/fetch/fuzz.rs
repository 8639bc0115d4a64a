//! What fuzzing calls of this room: what is read of a store's answers.

use bytes::Bytes;

use super::headers::content_range;
use super::{list, refusal};
use crate::sample::{Location, Scheme};

/// A page of a listing, of both dialects.
pub fn listing(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    for scheme in [Scheme::S3, Scheme::Az] {
        let prefix = Location { scheme, authority: "bucket".into(), key: "data/".into() };
        list::look(&bytes, &prefix);
    }
}

/// The header of a ranged answer, and the text of a refusal.
pub fn answer(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes)
        && let Some((first, last, whole)) = content_range(text)
    {
        assert!(last < u64::MAX, "the end of a range can be told: {first} {whole:?}");
    }
    refusal::look(bytes);
}
