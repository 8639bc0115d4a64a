//! Our way from planes to RGB gives the pixels of libjpeg-turbo's, of files of all sizes, sound or not.

use proptest::prelude::*;

use super::golden;
use crate::image::jpeg_ffi::{Ask, Failure, Session, Stream};
use crate::image::planes::{Buffers, Planes};
use crate::sample::Size;
use crate::simd::Simd;

/// Small JPEGs whose colour is stored at half the width, most of them at half the height too.
const FILES: [&str; 6] = ["420", "422", "restarts", "restart_rows", "optimised", "progressive"];

type Outcome = (Vec<u8>, Result<(), Failure>);

/// Where the header of the frame says how high it is; the width follows, and what each component is like.
const HEIGHT: usize = 5;
const WIDTH: usize = 7;
const SAMPLING: [usize; 3] = [11, 14, 17];

/// The file, said to be of that size and, if asked, of that sampling.
fn file(name: &str, size: Size, sampling: Option<[u8; 3]>) -> Vec<u8> {
    let mut bytes = golden(&format!("jpeg/{name}.jpg"));
    let is_frame = |marker: &[u8]| matches!(marker, [0xFF, 0xC0 | 0xC2]);
    let frame = bytes.windows(2).position(is_frame).expect("it is baseline or progressive");
    for (at, length) in [(HEIGHT, size.height), (WIDTH, size.width)] {
        bytes[frame + at..][..2].copy_from_slice(&(length as u16).to_be_bytes());
    }
    for (at, factors) in SAMPLING.into_iter().zip(sampling.into_iter().flatten()) {
        bytes[frame + at] = factors;
    }
    bytes
}

fn ask(size: Size, quick: Option<Simd>, planes: bool) -> Ask {
    Ask { size, shrink: 1, channels: 3, quick, planes, max_scans: 100 }
}

fn theirs(session: &mut Session, bytes: &[u8], size: Size) -> Outcome {
    let row = size.width as usize * 3;
    let mut out = vec![0; size.height as usize * row];
    let outcome = Stream::start(session, bytes, ask(size, None, false))
        .and_then(|mut stream| stream.read(size.height as usize, &mut out, row));
    (out, outcome)
}

/// How planes are read.
struct Way<'a> {
    simd: Simd,
    /// Rows at a time.
    some: usize,
    /// Bytes between rows.
    gap: usize,
    buffers: &'a mut Buffers,
}

/// Nothing if libjpeg gives no planes of the file.
fn ours(session: &mut Session, bytes: &[u8], size: Size, way: Way<'_>) -> Option<Outcome> {
    let Way { simd, some, gap, buffers } = way;
    let (height, row) = (size.height as usize, size.width as usize * 3);
    let stride = row + gap;
    // The last row ends where its pixels do.
    let mut wide = vec![0; (height - 1) * stride + row];
    let outcome = match Stream::start(session, bytes, ask(size, Some(simd), true)) {
        Ok(stream) => {
            let down = stream.planes()?;
            let mut planes = Planes::new(stream, down, size, simd, buffers);
            let read = |out: &mut [u8]| planes.read(out.len().div_ceil(stride), out, stride);
            wide.chunks_mut(stride * some).try_for_each(read)
        }
        Err(failure) => Err(failure),
    };
    Some((wide.chunks(stride).flat_map(|wide| &wide[..row]).copied().collect(), outcome))
}

fn sizes() -> impl Strategy<Value = Size> {
    (1_u32..=140, 1_u32..=70).prop_map(|(width, height)| Size { width, height })
}

fn same(found: &Outcome, truth: &Outcome) -> bool {
    // What there is of a file that is refused is not looked at.
    found.1 == truth.1 && (found.1.is_err() || found.0 == truth.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn files_of_all_sizes_give_the_same_pixels(
        (name, size) in (prop::sample::select(&FILES[..]), sizes()),
        (other_name, other_size) in (prop::sample::select(&FILES[..]), sizes()),
        (some, gap) in (1_usize..20, 0_usize..80),
    ) {
        let (bytes, other) = (file(name, size, None), file(other_name, other_size, None));
        let mut session = Session::default();
        let truth = theirs(&mut session, &bytes, size);
        for simd in Simd::all() {
            let buffers = &mut Buffers::default();
            // What an image before left in the memory does not matter.
            ours(&mut session, &other, other_size, Way { simd, some, gap, buffers });
            let way = Way { simd, some, gap, buffers };
            match ours(&mut session, &bytes, size, way) {
                Some(found) => prop_assert!(same(&found, &truth), "{simd:?}: {:?}", found.1),
                None => prop_assert!(size.width <= 4, "two samples of colour are not smoothed"),
            }
        }
    }

    /// Of some samplings no planes come, and then there is nothing to compare.
    #[test]
    fn files_of_all_samplings_and_with_noise_give_the_same_pixels_and_the_same_verdict(
        (name, size) in (prop::sample::select(&FILES[..]), sizes()),
        luma in prop::sample::select(&[0x21, 0x21, 0x22, 0x22, 0x11, 0x12, 0x41, 0x31][..]),
        chroma in prop::sample::select(&[[0x11, 0x11], [0x11, 0x11], [0x21, 0x11], [0x11, 0x12]][..]),
        noise in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0xD0), Just(0)]),
            0..6,
        ),
    ) {
        let mut bytes = file(name, size, Some([luma, chroma[0], chroma[1]]));
        for (place, byte) in noise {
            let place = 600 + place.index(bytes.len() - 600);
            bytes[place] = byte;
        }
        // The one thing that our entropy decoder and libjpeg-turbo's take differently.
        prop_assume!(!bytes.windows(2).any(|pair| pair == [0xFF, 0xFF]));
        let mut session = Session::default();
        let truth = theirs(&mut session, &bytes, size);
        for simd in Simd::all() {
            let way = Way { simd, some: 16, gap: 0, buffers: &mut Buffers::default() };
            if let Some(found) = ours(&mut session, &bytes, size, way) {
                prop_assert!(same(&found, &truth), "{simd:?}: {:?}, not {:?}", found.1, truth.1);
            }
        }
    }
}

#[test]
fn planes_come_of_what_they_are_made_for() {
    let size = Size { width: 83, height: 61 };
    let mut session = Session::default();
    let down = |name: &str| {
        let bytes = golden(&format!("jpeg/{name}.jpg"));
        Stream::start(&mut session, &bytes, ask(size, None, true)).unwrap().planes()
    };
    let found = ["420", "progressive", "422", "444", "grey"].map(down);
    assert_eq!(found, [Some(2), Some(2), Some(1), None, None]);
}
