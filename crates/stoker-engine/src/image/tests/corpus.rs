//! 122 odd and hostile files, each with Pillow's verdict and with what a trainer should get. Those that
//! were made for it lie in `testdata/golden/corpus`, where they are small; all of them lie in a folder
//! beside the repository, which is read where it is at hand.

use std::path::Path;

use serde_json::Value;

use super::{decode_with, repository, sha256};
use crate::recipe::{Alpha, RgbRules, SixteenBit};

/// What is refused, by code; all others must give Pillow's pixels.
const REFUSED: [(&str, &[&str]); 17] = [
    (
        "bad-header",
        &[
            "gif_infinite_empty_loop.gif",
            "gif_zero_width.gif",
            "jpeg_4byte_soi_eoi.jpg",
            "jpeg_missing_sos.jpg",
            "png_broken_chunk.png",
            "png_ihdr_missing.png",
            "png_suite_xc1.png",
            "png_unexpected_eof.png",
        ],
    ),
    ("base64-text", &["gen_base64_text.jpg"]),
    ("corrupt", &["apng_zero_frames.png", "png_suite_no_idat.png"]),
    ("empty", &["jpeg_empty_0byte.jpg"]),
    ("gzip", &["gen_gzip_wrapped.jpg"]),
    ("html-page", &["gen_html_403.jpg"]),
    ("lfs-pointer", &["gen_git_lfs_pointer.jpg"]),
    ("mangled-text", &["gen_utf8_mangled.jpg"]),
    ("not-an-image", &["png_suite_crlf.png", "gen_swapped_ranges.jpg"]),
    ("prefixed", &["gen_bom_prefix.png", "gen_crlf_prefix.jpg"]),
    ("side-too-long", &["bmp_reallybig.bmp", "jpeg_65535x65535_bomb.jpg"]),
    ("store-error", &["gen_s3_slowdown_xml.jpg"]),
    ("too-many-pixels", &["gen_png_bomb_30000_1bit.png", "gen_webp_vp8l_bomb_16383.webp"]),
    ("too-many-scans", &["gen_progressive_scan_bomb.jpg"]),
    (
        "truncated",
        &[
            "jpeg_huffman_overflow.jpg",
            "jpeg_incomplete_large.jpg",
            "jpeg_invalid_dimensions.jpg",
            "jpeg_missing_sof.jpg",
            "jpeg_oss_fuzz_36829.jpg",
            "jpeg_ultrahdr_gainmap.jpg",
            "png_truncated.png",
            "gen_dup_range_retry_bug.jpg",
            "gen_second_half_zero.jpg",
            "gen_trunc_50.jpg",
            "gen_trunc_95.jpg",
            "gen_trunc_header.jpg",
            "gen_trunc_no_eoi.jpg",
        ],
    ),
    (
        "unsupported-format",
        &[
            "avif_grid_dimg_repeat.avif",
            "avif_irot.avif",
            "avif_missing_pixi.avif",
            "heif_hopper.heif",
            "ico_bomb.ico",
            "jpeg_12bit.jpg",
            "jpeg_lossless_sof3.jpg",
            "tiff_16bit.tif",
            "tiff_ifd_loop.tiff",
            "tiff_oom_88byte.tif",
            "gen_float32.tiff",
            "gen_mp4_as_jpg.jpg",
            "gen_pdf_as_jpg.jpg",
            "gen_svg_as_jpg.jpg",
        ],
    ),
    ("zero-filled", &["gen_zero_filled.jpg"]),
];

/// Pillow refuses this for the size of its text, which is not read here; the first bytes of the
/// SHA-256 of the pixels that it gives when its limit is raised.
const LONG_TEXT: (&str, &str) = ("png_ztxt_bomb.png", "709e80c88487a241");

/// Coefficients out of range, of which libjpeg-turbo's kernels for x86-64 make other pixels than its C
/// code does (as with `JSIMD_FORCENONE=1`) and its kernels for Arm do; Pillow's are of x86-64.
const X86_ALONE: [&str; 2] = ["jpeg_bad_exif_large.jpg", "jpeg_dc_predictor_overflow.jpg"];

/// Pillow's own `convert("RGB")`, which drops alpha.
fn pillow(bytes: &[u8]) -> RgbRules {
    let alpha = if bytes.starts_with(b"GIF") { Alpha::WhiteIfRgba } else { Alpha::Drop };
    RgbRules { exif: false, alpha, sixteen_bit: SixteenBit::Clip }
}

/// What the manifest would have accepted, or unsupported as its words say, and is not.
const UNSUPPORTED: &str = "tiff_16bit.tif";

#[test]
fn small_files_of_the_corpus_give_pillows_pixels_or_are_refused_with_the_right_code() {
    assert_eq!(read_all(&repository().join("testdata/golden/corpus")), [18, 21]);
}

#[test]
fn all_files_of_the_corpus_give_pillows_pixels_or_are_refused_with_the_right_code() {
    let repository = repository().canonicalize().unwrap();
    let mut beside = repository.ancestors().map(|above| above.join("shared/corpus"));
    let Some(folder) = beside.find(|folder| folder.join("manifest.jsonl").exists()) else {
        println!("skipped: there is no shared/corpus beside or above the repository");
        return;
    };
    assert_eq!(read_all(&folder), [68, 54]);
    let all = REFUSED.iter().flat_map(|(_, files)| *files);
    for name in all {
        assert!(folder.join(name).exists(), "{name} is in the folder");
    }
}

/// Reads all files of a folder's manifest: how many were accepted, and refused.
fn read_all(folder: &Path) -> [usize; 2] {
    let manifest = std::fs::read_to_string(folder.join("manifest.jsonl")).unwrap();
    let rows: Vec<Value> =
        manifest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let differ: Vec<String> = rows.iter().filter_map(|row| differs(folder, row)).collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    let refused = rows.iter().filter(|row| code_of(row["file"].as_str().unwrap()).is_some());
    let refused = refused.count();
    [rows.len() - refused, refused]
}

/// The code that a file is to be refused with.
fn code_of(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(_, files)| files.contains(&name)).map(|(code, _)| *code)
}

/// How a file's fate differs from what is expected.
fn differs(folder: &Path, row: &Value) -> Option<String> {
    let name = row["file"].as_str().unwrap();
    let code = code_of(name);
    // Ours is not to differ from what the manifest has for right.
    match (row["expect"].as_str().unwrap(), code) {
        ("accept", None) | ("reject", Some(_)) | ("policy", _) => {}
        ("accept", Some("unsupported-format")) if name == UNSUPPORTED => {}
        (right, code) => return Some(format!("{name}: {right} in the manifest, and {code:?}")),
    }
    let expected = code.unwrap_or("Pillow's pixels");
    let pixels = if name == LONG_TEXT.0 {
        Some(LONG_TEXT.1)
    } else {
        row["pillow_13_0_0"]["rgb_sha256_16"].as_str()
    };
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let found = match decode_with(&bytes, pillow(&bytes)) {
        Ok(image) if pixels == Some(&sha256(&image.pixels)[..16]) => "Pillow's pixels",
        Ok(_) if cfg!(not(target_arch = "x86_64")) && X86_ALONE.contains(&name) => expected,
        Ok(_) => "other pixels",
        Err(flaw) => flaw.code,
    };
    (found != expected).then(|| format!("{name}: {found}, not {expected}"))
}
