//! Our entropy decoder and what makes samples of it give the pixels of libjpeg-turbo's, of sound files and of noise.

use proptest::prelude::*;

use super::golden;
use crate::image::jpeg_ffi::{Ask, Failure, Session, Stream};
use crate::sample::Size;
use crate::simd::Simd;

/// Small JPEGs of all samplings, with restart markers, tables of their own and long codes; made by
/// `make_jpeg.py` beside them.
const FILES: [&str; 8] =
    ["420", "422", "444", "grey", "restarts", "restart_rows", "optimised", "best"];

const SIZE: Size = Size { width: 83, height: 61 };

type Outcome = (Vec<u8>, Result<(), Failure>);

fn pixels(session: &mut Session, bytes: &[u8], quick: Option<Simd>) -> Outcome {
    pixels_of(session, bytes, SIZE, 3, quick)
}

fn pixels_of(
    session: &mut Session,
    bytes: &[u8],
    size: Size,
    channels: usize,
    quick: Option<Simd>,
) -> Outcome {
    let (width, height) = (size.width as usize, size.height as usize);
    let mut out = vec![0; width * height * channels];
    let ask = Ask { size, shrink: 1, channels, quick, planes: false, max_scans: 100 };
    let outcome = Stream::start(session, bytes, ask)
        .and_then(|mut stream| stream.read(height, &mut out, width * channels));
    (out, outcome)
}

/// The file, said to be of that size and of components of these samplings. What is decoded of it is noise.
fn of_components(name: &str, size: Size, samplings: &[u8]) -> Vec<u8> {
    let mut bytes = file(name);
    let count = samplings.len() as u8;
    let (table, selector) =
        (|at: usize| u8::from(at > 0), |at: usize| if at > 0 { 0x11 } else { 0 });
    let (width, height) = ((size.width as u16).to_be_bytes(), (size.height as u16).to_be_bytes());
    let mut frame = vec![8, height[0], height[1], width[0], width[1], count];
    let mut scan = vec![count];
    for (at, sampling) in samplings.iter().enumerate() {
        frame.extend([at as u8, *sampling, table(at)]);
        scan.extend([at as u8, selector(at)]);
    }
    scan.extend([0, 63, 0]);
    replace(&mut bytes, 0xC0, &frame);
    replace(&mut bytes, 0xDA, &scan);
    bytes
}

/// Puts another segment in the place of one.
fn replace(bytes: &mut Vec<u8>, marker: u8, body: &[u8]) {
    let at = bytes.windows(2).position(|pair| pair == [0xFF, marker]).expect("it has one") + 2;
    let length = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let new = (body.len() as u16 + 2).to_be_bytes();
    bytes.splice(at..at + length, new.into_iter().chain(body.iter().copied()));
}

fn file(name: &str) -> Vec<u8> {
    golden(&format!("jpeg/{name}.jpg"))
}

#[test]
fn sound_files_give_the_same_pixels() {
    let mut session = Session::default();
    for name in FILES {
        let bytes = file(name);
        let truth = pixels(&mut session, &bytes, None);
        assert_eq!(truth.1, Ok(()), "{name}");
        for simd in Simd::all() {
            assert!(pixels(&mut session, &bytes, Some(simd)) == truth, "{name}, {simd:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Noise in the coded data, in tables and in headers; some of it markers.
    #[test]
    fn damaged_files_give_the_same_pixels_and_the_same_verdict(
        name in prop::sample::select(&FILES[..]),
        noise in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0xFF), Just(0xD0), Just(0)]),
            1..6,
        ),
        (cut, from) in (prop::option::weighted(0.2, any::<prop::sample::Index>()), 0_usize..700),
    ) {
        let mut bytes = file(name);
        for (place, byte) in noise {
            let from = from.min(bytes.len() - 1);
            let place = from + place.index(bytes.len() - from);
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(600 + cut.index(bytes.len() - 600));
            bytes.extend([0xFF, 0xD9]);
        }
        // The one thing that libjpeg-turbo's quick and slow path take differently.
        prop_assume!(!bytes.windows(2).any(|pair| pair == [0xFF, 0xFF]));
        let mut session = Session::default();
        let truth = pixels(&mut session, &bytes, None);
        for simd in Simd::all() {
            let ours = pixels(&mut session, &bytes, Some(simd));
            // What there is of a file that is refused is not looked at.
            prop_assert!(ours.1 == truth.1 && (ours.1.is_err() || ours.0 == truth.0), "{simd:?}");
        }
    }

    /// Up to ten blocks to an MCU, of which some lie beyond the edges.
    #[test]
    fn all_samplings_and_sizes_give_the_same_pixels(
        name in prop::sample::select(&["420", "444", "restarts", "best"][..]),
        (width, height) in (1_u32..=140, 1_u32..=140),
        samplings in prop_oneof![
            3 => prop::collection::vec((1_u8..=2, 1_u8..=2), 3),
            3 => prop::collection::vec((1_u8..=4, 1_u8..=4), 3),
            1 => prop::collection::vec((1_u8..=4, 1_u8..=4), 1),
            1 => prop::collection::vec((1_u8..=2, 1_u8..=2), 4),
        ],
    ) {
        let samplings: Vec<u8> = samplings.into_iter().map(|(h, v)| h << 4 | v).collect();
        let (size, channels) = (Size { width, height }, samplings.len().max(3));
        let bytes = of_components(name, size, &samplings);
        let mut session = Session::default();
        let truth = pixels_of(&mut session, &bytes, size, channels, None);
        for simd in Simd::all() {
            let ours = pixels_of(&mut session, &bytes, size, channels, Some(simd));
            prop_assert!(ours.1 == truth.1 && (ours.1.is_err() || ours.0 == truth.0), "{simd:?}");
        }
    }
}

/// Else the test above would compare refusals.
#[test]
fn files_of_all_kinds_of_samplings_are_decoded() {
    let mut session = Session::default();
    for samplings in [
        &[0x11][..],
        &[0x22],
        &[0x14],
        &[0x41, 0x11, 0x11],
        &[0x31, 0x11, 0x11],
        &[0x22, 0x21, 0x11],
        &[0x42, 0x11, 0x11],
        &[0x22, 0x21, 0x22],
        &[0x11, 0x11, 0x11, 0x11],
        &[0x22, 0x11, 0x11, 0x22],
    ] {
        let bytes = of_components("best", SIZE, samplings);
        let channels = samplings.len().max(3);
        for quick in [None, Some(Simd::detect())] {
            let outcome = pixels_of(&mut session, &bytes, SIZE, channels, quick);
            assert_eq!(outcome.1, Ok(()), "{samplings:x?}");
        }
    }
}
