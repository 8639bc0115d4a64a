//! The room's promises, against pixels and verdicts of the references (see `testdata/golden`).

mod approximate;
mod corpus;
mod golden;
mod hostile;
mod huffman;
#[cfg(target_arch = "x86_64")]
mod idct;
mod planes;
mod property;

use std::fmt::Write;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::{Decoder, inspect, inspect_beginning};
use crate::error::Flaw;
use crate::recipe::{self, Compat, RgbRules};
use crate::sample::RgbImage;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(name: &str) -> Vec<u8> {
    let path = repository().join("testdata/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decode_with(bytes: &[u8], rules: RgbRules) -> Result<RgbImage, Flaw> {
    decode_within(bytes, &recipe::Image::default(), rules)
}

fn decode_within(bytes: &[u8], limits: &recipe::Image, rules: RgbRules) -> Result<RgbImage, Flaw> {
    let header = inspect(bytes, limits, rules)?;
    let mut decoder = Decoder::default();
    let image = decoder.decode(bytes, &header, limits, rules)?;
    let size = header.size();
    assert_eq!((image.width, image.height), (size.width as usize, size.height as usize));
    assert_eq!(image.pixels.len(), image.width * image.height * 3);
    Ok(image.clone())
}

fn decode(bytes: &[u8]) -> Result<RgbImage, Flaw> {
    decode_with(bytes, Compat::AsDisplayed.rgb())
}

/// The code that the bytes are refused with.
fn code(bytes: &[u8]) -> &'static str {
    decode(bytes).map_or_else(|flaw| flaw.code, |_| "accepted")
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
