//! The checksum that S3 keeps of every object.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, Digest};

use crate::body::Source;

/// Bytes that are summed up at once.
const CHUNK: u64 = 1 << 20;

/// CRC-64/NVME of all bytes, as headers have it: big-endian, in base64.
pub(crate) fn crc64nvme(source: &Source) -> io::Result<String> {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let end = source.len();
    for start in (0..end).step_by(CHUNK as usize) {
        digest.update(&source.read(start..end.min(start + CHUNK))?);
    }
    Ok(STANDARD.encode(digest.finalize().to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn the_checksum_is_the_published_check_value() {
        let source = Source::Memory(Bytes::from_static(b"123456789"));
        assert_eq!(crc64nvme(&source).unwrap(), "rosUhgp5mIg=");
        let bytes = Bytes::from(vec![7; (CHUNK + 5) as usize]);
        let whole = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &bytes);
        let long = Source::Memory(bytes);
        assert_eq!(crc64nvme(&long).unwrap(), STANDARD.encode(whole.to_be_bytes()));
    }
}
