//! Files that are broken, hostile or no images, made here.

use super::{code, decode, golden};
use crate::image::{Decoder, KEPT, inspect};
use crate::recipe::{self, Compat};

#[test]
fn files_that_are_no_images_are_told_apart() {
    let zeros = [0; 64];
    let cases: [(&[u8], &str); 22] = [
        (b"", "empty"),
        (&zeros, "zero-filled"),
        (b"<!DOCTYPE html><html><body>403 Forbidden</body></html>", "html-page"),
        (b"\n  <HTML><head>", "html-page"),
        (b"<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code></Error>", "store-error"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "lfs-pointer"),
        (b"\x1F\x8B\x08\0\0\0\0\0\0\x03", "gzip"),
        (b"/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgK", "base64-text"),
        (b"data:image/png;base64,iVBORw0KGgo=", "base64-text"),
        ("\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}\0\u{10}JFIF".as_bytes(), "mangled-text"),
        ("\u{FFFD}PNG\r\n".as_bytes(), "mangled-text"),
        (b"\r\n\xFF\xD8\xFF\xE0", "prefixed"),
        (b"\0\0\0\x20ftypavif\0\0\0\0", "unsupported-format"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "unsupported-format"),
        (b"\0\0\0\x18ftypisom\0\0\0\0", "unsupported-format"),
        (b"II*\0\x08\0\0\0", "unsupported-format"),
        (b"%PDF-1.7", "unsupported-format"),
        (b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "unsupported-format"),
        (b"\0\0\x01\0\x01\0", "unsupported-format"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "unsupported-format"),
        (b"\xFF\xD8", "not-an-image"),
        (b"hello", "not-an-image"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(code(bytes), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn refusals_say_what_is_wrong_and_what_to_do() {
    let flaw = decode(b"<html>").unwrap_err();
    let text = flaw.to_string();
    assert_eq!(
        text,
        "the file is a web page [image/html-page]; the site refused the download; fetch it again or \
         drop the row"
    );
    let flaw = decode(b"hello").unwrap_err();
    assert!(flaw.to_string().contains("68 65 6c 6c 6f"), "{flaw}");
}

/// A JPEG that claims this size and has no data.
fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = golden("images/a_444.jpg");
    let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = golden("images/p_1bit.png");
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    bytes
}

#[test]
fn bombs_are_refused_by_their_header() {
    assert_eq!(code(&jpeg_of(65_535, 65_535)), "side-too-long");
    assert_eq!(code(&jpeg_of(60_000, 60_000)), "too-many-pixels");
    assert_eq!(code(&jpeg_of(0, 10)), "bad-header");
    assert_eq!(code(&png_of(30_000, 30_000)), "too-many-pixels");
    assert_eq!(code(&png_of(u32::MAX, u32::MAX)), "side-too-long");
    let webp = b"RIFF\x14\0\0\0WEBPVP8L\x08\0\0\0\x2F\xFE\xFF\xFF\x0F\0\0\0";
    assert_eq!(code(webp), "too-many-pixels");
    let gif = b"GIF89a\xFF\xFF\xFF\xFF\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x4C\x01\0;";
    assert_eq!(code(gif), "side-too-long");
    let mut bmp = golden("odd/rgb.bmp");
    bmp[18..22].copy_from_slice(&3_000_000_i32.to_le_bytes());
    assert_eq!(code(&bmp), "side-too-long");
}

#[test]
fn each_limit_refuses_what_exceeds_it_and_nothing_else() {
    let bytes = golden("images/a_444.jpg"); // 240 x 230
    let rules = Compat::AsDisplayed.rgb();
    let of = |limits: &recipe::Image| inspect(&bytes, limits, rules).map_err(|flaw| flaw.code);
    let exact = recipe::Image {
        max_pixels: 240 * 230,
        max_side: 240,
        max_bytes: bytes.len() as u64,
        max_scans: 1,
        ..recipe::Image::default()
    };
    assert!(of(&exact).is_ok());
    let less_pixels = recipe::Image { max_pixels: 240 * 230 - 1, ..exact.clone() };
    assert_eq!(of(&less_pixels), Err("too-many-pixels"));
    assert_eq!(of(&recipe::Image { max_side: 239, ..exact.clone() }), Err("side-too-long"));
    let less_bytes = recipe::Image { max_bytes: exact.max_bytes - 1, ..exact };
    assert_eq!(of(&less_bytes), Err("too-many-bytes"));
}

/// A progressive JPEG whose last scan is repeated.
fn scan_bomb(times: usize) -> Vec<u8> {
    let bytes = golden("images/c_prog.jpg");
    let last = bytes.windows(2).rposition(|pair| pair == [0xFF, 0xDA]).unwrap();
    let scan = &bytes[last..bytes.len() - 2];
    [&bytes[..last], &scan.repeat(times), &[0xFF, 0xD9]].concat()
}

#[test]
fn a_jpeg_of_many_scans_is_refused_by_the_header_and_by_the_decoder() {
    assert_eq!(code(&scan_bomb(500)), "too-many-scans");
    assert_eq!(code(&scan_bomb(1)), "accepted");
    let bytes = scan_bomb(50);
    let (limits, rules) = (recipe::Image::default(), Compat::AsDisplayed.rgb());
    let header = inspect(&bytes, &limits, rules).unwrap();
    let few = recipe::Image { max_scans: 20, ..limits };
    let flaw = Decoder::default().decode(&bytes, &header, &few, rules).unwrap_err();
    assert_eq!(flaw.code, "too-many-scans");
}

#[test]
fn a_jpeg_that_ends_early_is_truncated_wherever_it_is_cut() {
    for name in ["a_444.jpg", "b_420_odd.jpg", "c_prog.jpg", "l_cmyk.jpg"] {
        let bytes = golden(&format!("images/{name}"));
        let length = bytes.len();
        for end in [length / 2, length * 95 / 100, length - 3, length - 2, length - 1] {
            assert_eq!(code(&bytes[..end]), "truncated", "{name} cut at {end} of {length}");
        }
        let rest_zero = [&bytes[..length / 2], &vec![0; length / 2]].concat();
        assert_eq!(code(&rest_zero), "truncated", "{name} with a second half of zeros");
    }
}

#[test]
fn other_formats_that_end_early_are_truncated_too() {
    let files = [
        "images/d_tall.png",
        "images/f_rgba.png",
        "odd/lossy.webp",
        "odd/lossless_alpha.webp",
        "odd/frames.webp",
        "odd/plain.gif",
        "odd/rgb.bmp",
    ];
    for name in files {
        let bytes = golden(name);
        assert_eq!(code(&bytes[..bytes.len() / 2]), "truncated", "{name}");
    }
}

#[test]
fn bytes_after_the_image_are_ignored() {
    for name in
        ["images/a_444.jpg", "images/d_tall.png", "odd/lossy.webp", "odd/plain.gif", "odd/rgb.bmp"]
    {
        let bytes = golden(name);
        let longer = [&bytes[..], &[0xA5; 5000]].concat();
        assert_eq!(decode(&longer), decode(&bytes), "{name}");
        assert_eq!(code(&longer), "accepted", "{name}");
    }
}

#[test]
fn a_damaged_checksum_counts_in_pixel_data_only() {
    let mut bytes = golden("odd/exif6.png");
    let of = |kind: &[u8; 4], bytes: &[u8]| bytes.windows(4).position(|w| w == kind).unwrap();
    let end_of_exif = of(b"IDAT", &bytes) - 5;
    bytes[end_of_exif] ^= 1;
    assert_eq!(code(&bytes), "accepted");
    let end_of_pixels = of(b"IEND", &bytes) - 5;
    bytes[end_of_pixels] ^= 1;
    assert_eq!(code(&bytes), "corrupt");
}

#[test]
fn text_chunks_are_never_inflated() {
    // 64 KiB of deflated nonsense: an attempt to inflate it would fail.
    let mut chunk = b"zTXtkey\0\0".to_vec();
    chunk.extend(vec![0xFF; 1 << 16]);
    let bytes = golden("images/p_1bit.png");
    let length = (chunk.len() as u32 - 4).to_be_bytes();
    let crc = crc32(&chunk).to_be_bytes();
    let longer = [&bytes[..33], &length, &chunk, &crc, &bytes[33..]].concat();
    assert_eq!(decode(&longer), decode(&bytes));
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn a_header_of_another_file_is_refused_and_not_believed() {
    let (limits, rules) = (recipe::Image::default(), Compat::AsDisplayed.rgb());
    let files = [
        "images/a_444.jpg",
        "images/l_cmyk.jpg",
        "images/d_tall.png",
        "odd/lossy.webp",
        "odd/frames.webp",
        "odd/plain.gif",
        "odd/rgb.bmp",
    ];
    for name in files {
        let bytes = golden(name);
        let mut header = inspect(&bytes, &limits, rules).unwrap();
        header.stored.width += 1;
        assert!(Decoder::default().decode(&bytes, &header, &limits, rules).is_err(), "{name}");
    }
}

#[test]
fn memory_that_a_huge_image_needed_is_not_kept() {
    let mut decoder = Decoder::default();
    for (pixels, kept) in [(KEPT / 3, KEPT / 3), (KEPT, 0), (1000, 1000)] {
        super::super::resize(&mut decoder.image.pixels, pixels as u64).unwrap();
        super::super::resize(&mut decoder.raw, pixels as u64).unwrap();
        decoder.tidy();
        assert_eq!(decoder.raw.capacity(), kept);
        assert_eq!(decoder.image.pixels.capacity(), kept);
    }
}
