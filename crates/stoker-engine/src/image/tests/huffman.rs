//! Our entropy decoder gives the coefficients of libjpeg-turbo's, of sound files and of noise.

use proptest::prelude::*;

use super::golden;
use crate::image::jpeg_ffi::{Ask, Failure, Session, Stream};
use crate::sample::Size;

/// Small JPEGs of all samplings, with restart markers, tables of their own and long codes; made by
/// `make_jpeg.py` beside them.
const FILES: [&str; 8] =
    ["420", "422", "444", "grey", "restarts", "restart_rows", "optimised", "best"];

const SIZE: Size = Size { width: 83, height: 61 };

fn pixels(session: &mut Session, bytes: &[u8], quick: bool) -> (Vec<u8>, Result<(), Failure>) {
    let (width, height) = (SIZE.width as usize, SIZE.height as usize);
    let mut out = vec![0; width * height * 3];
    let ask = Ask { size: SIZE, shrink: 1, channels: 3, quick, planes: false, max_scans: 100 };
    let outcome = Stream::start(session, bytes, ask)
        .and_then(|mut stream| stream.read(height, &mut out, width * 3));
    (out, outcome)
}

fn file(name: &str) -> Vec<u8> {
    golden(&format!("jpeg/{name}.jpg"))
}

#[test]
fn sound_files_give_the_same_pixels() {
    let mut session = Session::default();
    for name in FILES {
        let bytes = file(name);
        let ours = pixels(&mut session, &bytes, true);
        assert_eq!(ours.1, Ok(()), "{name}");
        assert!(ours == pixels(&mut session, &bytes, false), "{name}");
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
        let ours = pixels(&mut session, &bytes, true);
        let truth = pixels(&mut session, &bytes, false);
        // What there is of a file that is refused is not looked at.
        prop_assert!(ours.1 == truth.1 && (ours.1.is_err() || ours.0 == truth.0));
    }
}
