//! Data that are large, or become large: memory stays under the limit and what is stated beside it,
//! and what is larger than may be is an error or a bad sample with its name.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stoker_engine::error::Error;
use stoker_engine::recipe::Recipe;
use stoker_engine::testing::encode_jpeg;

use crate::alone::{MIB, Ran, alone, overhead, run};
use crate::common;

const SECOND: Duration = Duration::from_secs(1);
/// Lines of the tests, at most.
const LINE: u64 = 4 * MIB;

fn recipe(source: &Path, memory: &str, more: Value) -> Recipe {
    let mut value = json!({
        "dataset": {"max-line": LINE},
        "plan": {"shuffle": "none", "epochs": 1},
        "vision": {"pixels": "u8", "min-pixels": 4096, "max-pixels": 65536},
        "pack": {"batch-size": 4},
        "engine": {"memory": memory, "workers": 2, "bad-sample-limit": 1.0},
    });
    common::merge(&mut value, more);
    common::recipe(source, value)
}

/// The samples that were found to be bad, by code.
fn bad(ran: &Ran, code: &str) -> u64 {
    ran.report.flaws.iter().filter(|flaw| flaw.code == code).map(|flaw| flaw.samples).sum()
}

/// A PNG of that colour type whose pixels are all zero and not compressed: as many bytes as pixels
/// take, and quickly made.
pub(crate) fn png(width: u32, height: u32, colour: u8, level: flate2::Compression) -> Vec<u8> {
    let channels = if colour == 6 { 4 } else { 3 };
    let mut pixels = flate2::write::ZlibEncoder::new(Vec::new(), level);
    let row = vec![0; 1 + width as usize * channels];
    (0..height).for_each(|_| pixels.write_all(&row).unwrap());
    let pixels = pixels.finish().unwrap();
    let [w, h] = [width, height].map(u32::to_be_bytes);
    let head = [&w[..], &h, &[8, colour, 0, 0, 0]].concat();
    let mut bytes = b"\x89PNG\r\n\x1A\n".to_vec();
    for (kind, data) in [(b"IHDR", &head), (b"IDAT", &pixels), (b"IEND", &Vec::new())] {
        let mut crc = flate2::Crc::new();
        crc.update(kind);
        crc.update(data);
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(kind);
        bytes.extend(data);
        bytes.extend(crc.sum().to_be_bytes());
    }
    bytes
}

fn photo(width: usize, height: usize) -> Vec<u8> {
    encode_jpeg(&stoker_engine::testing::photo(7, width, height), width, height, 85)
}

fn lines(folder: &Path, lines: &[String]) -> std::path::PathBuf {
    let path = folder.join("hostile.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn large_images() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        common::chat(name, "assistant")
    };
    let stored = flate2::Compression::none();
    // 60 MB, and 60 MB of pixels; the same with alpha and well compressed, where 20 megapixels pass
    // through RGBA; and bombs of all formats.
    let large = write("large.png", &png(4472, 4472, 2, stored));
    let alpha = write("alpha.png", &png(4472, 4472, 6, flate2::Compression::fast()));
    let mut bomb = png(64, 64, 2, stored);
    bomb[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]);
    let png_bomb = write("bomb.png", &bomb);
    let webp_bomb =
        write("bomb.webp", b"RIFF\x14\0\0\0WEBPVP8L\x08\0\0\0\x2F\xFE\xFF\xFF\x0F\0\0\0");
    let gif_bomb = write(
        "bomb.gif",
        b"GIF89a\xFF\xFF\xFF\xFF\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x4C\x01\0;",
    );
    let photo = write("photo.jpg", &photo(900, 700));
    let mut rows = Vec::new();
    for _ in 0..6 {
        rows.extend([&large, &photo, &alpha, &png_bomb, &photo, &webp_bomb, &gif_bomb, &photo]);
    }
    let rows: Vec<String> = rows.into_iter().cloned().collect();
    let memory = 512 * MIB;
    let ran = run(recipe(&lines(folder.path(), &rows), "512MiB", json!({})), SECOND).unwrap();
    assert_eq!(ran.samples, rows.len());
    assert!(bad(&ran, "too-many-pixels") >= 12 && bad(&ran, "side-too-long") >= 6);
    assert!(ran.grown <= memory + overhead(memory, 2, 0), "{} MiB", ran.grown / MIB);
}

#[test]
fn large_images_and_bombs_stay_under_the_limit_and_the_stated_overhead() {
    println!("{}", alone("inputs::large_images"));
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn long_texts() {
    let folder = tempfile::tempdir().unwrap();
    let chat = |text: &str| {
        let turns =
            json!([{"role": "user", "content": text}, {"role": "assistant", "content": "No."}]);
        json!({"messages": turns}).to_string()
    };
    let words = |bytes: u64| "what a long text that is, ".repeat(bytes as usize / 26);
    let nearly = LINE - 1000;
    let nest = "[".repeat(1 << 17);
    let zeros = format!("{{\"x\":[{}0]}}", "0,".repeat(nearly as usize / 2));
    let within = chat(&words(40_000));
    let long = chat(&words(nearly));
    let one_word = chat(&"a".repeat(nearly as usize));
    let spaces = chat(&" ".repeat(nearly as usize));
    let tabs = chat(&"\t\n".repeat(nearly as usize / 8));
    let mut rows = Vec::new();
    for _ in 0..3 {
        rows.extend([&long, &within, &one_word, &zeros, &nest, &within, &spaces, &tabs]);
    }
    let rows: Vec<String> = rows.into_iter().cloned().collect();
    let (memory, more) = (256 * MIB, json!({"text": {"max-tokens": 32768}}));
    let ran = run(recipe(&lines(folder.path(), &rows), "256MiB", more), SECOND).unwrap();
    assert_eq!(ran.samples, rows.len());
    assert!(bad(&ran, "too-long") >= 3 && bad(&ran, "too-many-values") >= 3);
    assert!(bad(&ran, "not-json") >= 3);
    assert!(ran.grown <= memory + overhead(memory, 2, LINE), "{} MiB", ran.grown / MIB);
}

#[test]
fn long_texts_and_json_bombs_stay_under_the_limit_and_the_stated_overhead() {
    println!("{}", alone("inputs::long_texts"));
}

/// A header of a member, as tar has it since 1979.
fn member(name: &str, size: u64) -> [u8; 512] {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    *header.as_bytes()
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn large_members_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let photo = photo(300, 200);
    let text = json!({"messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": "That."},
    ]})
    .to_string();
    let source = folder.path().join("large.tar");
    let mut file = File::create(&source).unwrap();
    let mut put = |name: &str, size: u64, content: &[u8]| {
        file.write_all(&member(name, size)).unwrap();
        file.write_all(content).unwrap();
        // A hole takes no room on the disk.
        let rest = size.next_multiple_of(512) - content.len() as u64;
        file.seek(SeekFrom::Current(rest as i64)).unwrap();
    };
    for row in 0..8 {
        // An image, and then the text, of 500 MB.
        let (image, words) = [(500_000_000, 0), (0, 500_000_000), (0, 0), (0, 0)][row % 4];
        put(&format!("{row}.jpg"), image.max(photo.len() as u64), &photo);
        put(&format!("{row}.json"), words.max(text.len() as u64), text.as_bytes());
    }
    file.write_all(&[0; 1024]).unwrap();
    let memory = 64 * MIB;
    let ran = run(recipe(&source, "64MiB", json!({})), SECOND).unwrap();
    assert_eq!(ran.samples, 8);
    assert!(bad(&ran, "too-many-bytes") >= 2 && bad(&ran, "too-long-line") >= 2);
    assert!(ran.grown <= memory + overhead(memory, 2, 0), "{} MiB", ran.grown / MIB);

    // A line of 300 MB, between two that are none.
    let source = folder.path().join("large.jsonl");
    std::fs::write(folder.path().join("photo.jpg"), &photo).unwrap();
    let chat = common::chat("photo.jpg", "assistant");
    let mut file = File::create(&source).unwrap();
    writeln!(file, "{chat}\n{chat}").unwrap();
    file.seek(SeekFrom::Current(300_000_000)).unwrap();
    write!(file, "\n{chat}\n{chat}").unwrap();
    let ran = run(recipe(&source, "64MiB", json!({})), SECOND).unwrap();
    // The last round is filled up.
    assert_eq!((ran.samples, bad(&ran, "too-long-line") >= 1), (8, true));
    assert!(ran.grown <= memory + overhead(memory, 2, 0), "{} MiB", ran.grown / MIB);
}

#[test]
fn members_and_lines_of_hundreds_of_megabytes_are_never_read() {
    println!("{}", alone("inputs::large_members_and_lines"));
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn tiny_samples() {
    tiny(100_000);
}

#[test]
#[ignore = "a minute: `cargo nextest run --release --run-ignored only -E 'test(a_million_tiny)'`"]
fn a_million_tiny_samples() {
    tiny(1_000_000);
}

fn tiny(rows: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for row in 0..rows {
        let turns = json!([{"role": "user", "content": "?"}, {"role": "assistant", "content": row.to_string()}]);
        writeln!(text, "{}", json!({"messages": turns})).unwrap();
    }
    let source = folder.path().join("tiny.jsonl");
    std::fs::write(&source, &text).unwrap();
    drop(text);
    let memory = 64 * MIB;
    let more = json!({"pack": {"batch-size": 500}});
    let ran = run(recipe(&source, "64MiB", more), SECOND).unwrap();
    assert_eq!(ran.samples, rows);
    assert!(ran.grown <= memory + overhead(memory, 2, 0), "{} MiB", ran.grown / MIB);
}

#[test]
fn a_hundred_thousand_tiny_samples_stay_under_the_limit_and_the_stated_overhead() {
    println!("{}", alone("inputs::tiny_samples"));
}

/// Neither waits for what can't come.
#[test]
fn what_is_larger_than_the_memory_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let large = png(4472, 4472, 2, flate2::Compression::none());
    std::fs::write(folder.path().join("large.png"), large).unwrap();
    let small = png(4472, 4472, 2, flate2::Compression::fast());
    std::fs::write(folder.path().join("small.png"), small).unwrap();
    for (name, memory, expected) in [
        ("large.png", "64MiB", "large.png needs 57.2 MiB, and the limit is 16.0 MiB; "),
        ("small.png", "64MiB", "a decoded image needs 57.2 MiB, and the limit is 32.0 MiB; "),
    ] {
        let source = lines(folder.path(), &[common::chat(name, "assistant")]);
        let more = json!({"pack": {"batch-size": 1}});
        let Err(Error::Budget(error)) = run(recipe(&source, memory, more), Duration::ZERO) else {
            panic!("{name} is refused");
        };
        let words = Error::Budget(error).to_string();
        assert!(words.contains(expected), "{words}");
    }
}
