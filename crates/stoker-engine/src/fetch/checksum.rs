//! Checksums that a store keeps of its objects (`fetch.checksum`).
//!
//! A length tells when bytes are lacking, and not when one of them was flipped on the way or in the
//! store. S3 keeps a checksum of each object and tells it when a whole object is asked for; so what is
//! read whole is held against it when all bytes are there, however many requests brought them. Of parts
//! S3 tells none, and none of objects that were put together from parts with checksums of their own.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use ring::digest;
use tokio::task::spawn_blocking;

use crate::metrics::Cause;

use super::failure::Failure;

/// What asks a store to tell the checksum.
pub(super) fn asking() -> (HeaderName, HeaderValue) {
    (HeaderName::from_static("x-amz-checksum-mode"), HeaderValue::from_static("ENABLED"))
}

/// Whether the checksum is of all bytes, or of the checksums of parts.
const KIND: &str = "x-amz-checksum-type";
/// More bytes are not summed up on the thread that all requests share.
const LARGE: usize = 1 << 20;

/// How a checksum is computed. The quick ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Crc64Nvme,
    Crc32C,
    Crc32,
    Sha256,
    Sha1,
}

impl Algorithm {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Crc64Nvme, "x-amz-checksum-crc64nvme"),
        (Self::Crc32C, "x-amz-checksum-crc32c"),
        (Self::Crc32, "x-amz-checksum-crc32"),
        (Self::Sha256, "x-amz-checksum-sha256"),
        (Self::Sha1, "x-amz-checksum-sha1"),
    ];

    fn of(self, bytes: &[u8]) -> Vec<u8> {
        let short = |algorithm| (checksum(algorithm, bytes) as u32).to_be_bytes().to_vec();
        let hash = |algorithm| digest::digest(algorithm, bytes).as_ref().to_vec();
        match self {
            Self::Crc64Nvme => checksum(CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes().to_vec(),
            Self::Crc32C => short(CrcAlgorithm::Crc32Iscsi),
            Self::Crc32 => short(CrcAlgorithm::Crc32IsoHdlc),
            Self::Sha256 => hash(&digest::SHA256),
            Self::Sha1 => hash(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        }
    }
}

/// What a store tells of all bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    algorithm: Algorithm,
    value: Vec<u8>,
}

impl Checksum {
    /// The one that the headers tell; of several the one that is computed fastest.
    pub(super) fn told(headers: &HeaderMap) -> Option<Self> {
        if headers.get(KIND).is_some_and(|kind| kind != "FULL_OBJECT") {
            return None;
        }
        Algorithm::ALL.into_iter().find_map(|(algorithm, name)| {
            // One of parts ends with their number, and is no base64.
            let value = STANDARD.decode(headers.get(name)?.as_bytes()).ok()?;
            (value.len() == algorithm.of(b"").len()).then_some(Self { algorithm, value })
        })
    }

    /// Whether it is that of these bytes.
    pub(super) async fn fits(&self, bytes: &Bytes) -> bool {
        let (algorithm, bytes) = (self.algorithm, bytes.clone());
        let computed = if bytes.len() < LARGE {
            algorithm.of(&bytes)
        } else {
            // A thread that is gone has found nothing; that ends the read in another way.
            spawn_blocking(move || algorithm.of(&bytes)).await.unwrap_or_default()
        };
        computed == self.value
    }

    /// It is not that of the bytes that came.
    pub(super) fn missed(&self) -> Failure {
        let reason = format!("the bytes do not have the checksum that the store tells, {self}");
        Failure::transient(reason)
            .because(Cause::Checksum)
            .hint("if that stays, the object is damaged in the store: put it there again")
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.algorithm, STANDARD.encode(&self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(headers: &[(&'static str, &str)]) -> Option<Checksum> {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        Checksum::told(&headers.iter().map(header).collect())
    }

    /// Check values of the catalogue of CRC algorithms and of FIPS 180.
    #[test]
    fn each_algorithm_gives_its_published_check_value() {
        let bytes = |hex: &str| -> Vec<u8> {
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(byte).collect()
        };
        for (algorithm, expected) in [
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Crc32C, "e3069283"),
            (Algorithm::Crc32, "cbf43926"),
        ] {
            assert_eq!(algorithm.of(b"123456789"), bytes(expected), "{algorithm:?}");
        }
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Algorithm::Sha256.of(b"abc"), bytes(sha256));
        let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
        assert_eq!(Algorithm::Sha1.of(b"abc"), bytes(sha1));
    }

    #[test]
    fn only_checksums_of_all_bytes_count() {
        let crc = ("x-amz-checksum-crc32", "y/Q5Jg==");
        let full = told(&[crc]).unwrap();
        assert_eq!(full.to_string(), "Crc32 y/Q5Jg==");
        assert_eq!(told(&[("x-amz-checksum-type", "FULL_OBJECT"), crc]), Some(full.clone()));
        assert_eq!(told(&[("x-amz-checksum-type", "COMPOSITE"), crc]), None);
        for odd in ["y/Q5Jg==-2", "y/Q5", "", "nonsense!"] {
            assert_eq!(told(&[("x-amz-checksum-crc32", odd)]), None, "{odd}");
        }
        let quick = ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=");
        assert_eq!(told(&[crc, quick]).unwrap().algorithm, Algorithm::Crc64Nvme);
        assert_eq!(told(&[]), None);
        assert!(futures::executor::block_on(full.fits(&Bytes::from_static(b"123456789"))));
        assert!(!futures::executor::block_on(full.fits(&Bytes::from_static(b"123456788"))));
    }
}
