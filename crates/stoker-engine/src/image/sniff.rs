//! What a file is, by its first bytes; names are not believed.
//!
//! Most files that "fail to decode" never were images: a web server's error page, a store's error
//! body, a Git LFS pointer, a compressed or re-encoded copy. Each has its own code and advice, so
//! that whoever owns the data sees from the counts what went wrong with it.

use super::{flaw, unsupported};
use crate::error::Flaw;
use crate::sample::ImageFormat;

/// How far into a file the text checks look, in bytes.
const PREFIX: usize = 512;

/// First bytes of formats that are known and not read.
const OTHERS: [(&[u8], &str); 14] = [
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"%PDF", "PDF"),
    (b"\0\0\x01\0", "ICO"),
    (b"8BPS", "PSD"),
    (b"\0\0\0\x0CjP  \r\n", "JPEG 2000"),
    (b"\xFF\x4F\xFF\x51", "JPEG 2000"),
    (b"\0\0\0\x0CJXL \r\n", "JPEG XL"),
    (b"\xFF\x0A", "JPEG XL"),
    (b"\x1A\x45\xDF\xA3", "Matroska or WebM video"),
    (b"RIFF", "a RIFF file other than WebP"),
    (b"qoif", "QOI"),
];

/// The format, or what the bytes are instead.
pub(super) fn format(bytes: &[u8]) -> Result<ImageFormat, Flaw> {
    supported(bytes).ok_or_else(|| what_else(bytes))
}

fn supported(bytes: &[u8]) -> Option<ImageFormat> {
    match bytes {
        [0xFF, 0xD8, 0xFF, ..] => Some(ImageFormat::Jpeg),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(ImageFormat::Png),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageFormat::WebP),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(ImageFormat::Gif),
        [b'B', b'M', ..] => Some(ImageFormat::Bmp),
        _ => None,
    }
}

fn what_else(bytes: &[u8]) -> Flaw {
    let prefix = &bytes[..bytes.len().min(PREFIX)];
    if bytes.is_empty() {
        return flaw("empty", "the file is empty").hint("the upload failed; store the file again");
    }
    if bytes.iter().all(|&byte| byte == 0) {
        return flaw("zero-filled", format!("all {} bytes of the file are zero", bytes.len()))
            .hint("its disk or file system lost the content; store the file again");
    }
    container(prefix)
        .map(unsupported)
        .or_else(|| wrapped(prefix))
        .or_else(|| text(prefix))
        .unwrap_or_else(|| not_an_image(prefix))
}

/// Images and other media of a format that is not read.
fn container(prefix: &[u8]) -> Option<&'static str> {
    if prefix.get(4..8) == Some(b"ftyp") {
        return Some(match prefix.get(8..12) {
            Some(b"avif" | b"avis") => "AVIF",
            Some(b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"mif1" | b"msf1") => "HEIC",
            _ => "MP4 video",
        });
    }
    OTHERS.iter().find(|(magic, _)| prefix.starts_with(magic)).map(|&(_, name)| name)
}

/// Images inside something else.
fn wrapped(prefix: &[u8]) -> Option<Flaw> {
    if prefix.starts_with(&[0x1F, 0x8B]) {
        let flaw = flaw("gzip", "the file is compressed with gzip");
        return Some(flaw.hint("decompress it; its Content-Encoding was lost on upload"));
    }
    // U+FFFD in UTF-8, as the signatures of JPEG and PNG become when they pass through text.
    if prefix.starts_with("\u{FFFD}\u{FFFD}".as_bytes())
        || prefix.starts_with("\u{FFFD}PNG".as_bytes())
    {
        let flaw = flaw(
            "mangled-text",
            "the file is an image that was stored as text: its bytes are lost",
        );
        return Some(flaw.hint("fetch it again from its origin, in binary mode"));
    }
    let start = prefix.iter().position(|b| !b"\r\n\t \xEF\xBB\xBF".contains(b))?;
    if start > 0 && supported(&prefix[start..]).is_some() {
        let flaw = flaw("prefixed", format!("{start} stray bytes precede the image"));
        return Some(flaw.hint("remove the bytes before the image's signature"));
    }
    None
}

/// Kinds of text that are found in place of images.
fn text(prefix: &[u8]) -> Option<Flaw> {
    let text = String::from_utf8_lossy(prefix).to_ascii_lowercase();
    let text = text.trim_start_matches(['\u{FEFF}', ' ', '\r', '\n', '\t']);
    if text.starts_with("version https://git-lfs.github.com/spec/") {
        let flaw = flaw("lfs-pointer", "the file is a Git LFS pointer, not the image itself");
        return Some(flaw.hint("run `git lfs pull` before uploading"));
    }
    if text.starts_with("<svg") || (text.starts_with("<?xml") && text.contains("<svg")) {
        return Some(unsupported("SVG"));
    }
    if text.starts_with("<error>") || (text.starts_with("<?xml") && text.contains("<error>")) {
        let flaw = flaw("store-error", "the file is an error message of an object store");
        return Some(flaw.hint("a failed download was saved as an image; download it again"));
    }
    if ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| text.starts_with(tag)) {
        let flaw = flaw("html-page", "the file is a web page");
        return Some(flaw.hint("the site refused the download; fetch it again or drop the row"));
    }
    is_base64(prefix)
        .then(|| flaw("base64-text", "the file is base64 text").hint("decode it before uploading"))
}

fn is_base64(prefix: &[u8]) -> bool {
    const SIGNATURES: [&[u8]; 5] = [b"data:image/", b"/9j/", b"iVBORw0KGgo", b"UklGR", b"R0lGODl"];
    let alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=\r\n:;,.-".contains(byte);
    SIGNATURES.iter().any(|signature| prefix.starts_with(signature)) && prefix.iter().all(alphabet)
}

fn not_an_image(prefix: &[u8]) -> Flaw {
    let start: Vec<String> = prefix.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    flaw(
        "not-an-image",
        format!("the file is of no known image format; it starts with {}", start.join(" ")),
    )
}
