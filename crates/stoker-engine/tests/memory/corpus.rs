//! Decoding takes what it is said to take, for every odd and hostile file that is at hand: what
//! large images ask for before they are decoded is what they take, and what is refused takes nothing.
//! All of it under a hard limit on the process.

use std::fs;
use std::path::{Path, PathBuf};

use stoker_engine::image::{Decoder, inspect, scratch};
use stoker_engine::recipe::{self, Compat};
use stoker_engine::sample::ImageFormat;
use stoker_engine::testing::jpeg::{encode_jpeg, encode_progressive_jpeg};

use crate::alone::{MIB, alone, status};
use crate::common::root;
use crate::inputs::png;

/// What the allocator and the libraries take besides: tables, rows, headers.
const SLACK: u64 = 6 * MIB;
/// Address space of the process.
const MOST: u64 = 4 << 30;

type Named = (String, Vec<u8>);

fn files(folder: &Path) -> Vec<Named> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.into_iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

/// Large files of each kind that is quickly made, where an estimate shows.
fn large() -> Vec<Named> {
    let (width, height) = (4000, 3000);
    let photo = stoker_engine::testing::photo(3, width, height);
    let fast = flate2::Compression::fast();
    let gif = {
        let mut bytes = Vec::new();
        let mut encoder = gif::Encoder::new(&mut bytes, 4000, 3000, &[0, 0, 0, 9, 9, 9]).unwrap();
        let pixels = vec![1; width * height];
        let frame = gif::Frame::from_indexed_pixels(4000, 3000, pixels, None);
        encoder.write_frame(&frame).unwrap();
        drop(encoder);
        bytes
    };
    vec![
        ("baseline".into(), encode_jpeg(&photo, width, height, 80)),
        ("progressive".into(), encode_progressive_jpeg(&photo, width, height, 80)),
        ("rgb png".into(), png(4000, 3000, 2, fast)),
        ("rgba png".into(), png(4000, 3000, 6, fast)),
        ("gif".into(), gif),
    ]
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn every_file() {
    let limit = rustix::process::Rlimit { current: Some(MOST), maximum: Some(MOST) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
    let golden = root().join("testdata/golden");
    let mut all = large();
    for folder in ["images", "odd", "jpeg", "corpus"] {
        all.extend(files(&golden.join(folder)));
    }
    let beside = root().ancestors().map(|above| above.join("shared/corpus")).find(|it| it.is_dir());
    all.extend(beside.iter().flat_map(|folder| files(folder)));
    let (limits, rules) = (recipe::Image::default(), Compat::AsDisplayed.rgb());
    let (mut read, mut refused) = (0, 0);
    for (name, bytes) in &all {
        // The peak begins anew.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = status("VmRSS");
        let mut told = 0;
        let mut decoder = Decoder::default();
        match inspect(bytes, &limits, rules) {
            Ok(header) => {
                told = scratch(bytes, &header);
                let outcome = decoder.decode(bytes, &header, &limits, rules);
                read += usize::from(outcome.is_ok());
                let pixels = header.stored.pixels() * 3;
                assert!(told >= pixels && told <= 6 * pixels + MIB, "{name}: {told} of {pixels}");
                if header.format == ImageFormat::Jpeg && name == "baseline" {
                    assert_eq!(told, pixels);
                }
            }
            Err(_) => refused += 1,
        }
        let taken = status("VmHWM").saturating_sub(before);
        assert!(
            taken <= told + SLACK,
            "{name} takes {} KiB, told were {}",
            taken >> 10,
            told >> 10
        );
        decoder.tidy();
    }
    println!("{read} read and {refused} refused of {}", all.len());
    assert!(read > 40);
}

#[test]
fn decoding_takes_what_it_is_said_to_take() {
    println!("{}", alone("corpus::every_file"));
}
