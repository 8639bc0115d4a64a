//! No bytes make the room panic, and what it accepts has the size that it promised.

use proptest::prelude::*;

use super::{decode_within, golden, inspect, inspect_beginning};
use crate::recipe::{self, Compat};

/// Small files of every format; JPEGs of every kind.
const SEEDS: [&str; 16] = [
    "images/c_prog.jpg",
    "images/k_exif6.jpg",
    "images/l_cmyk.jpg",
    "odd/grey.jpg",
    "images/i_pal.png",
    "images/m_i16.png",
    "odd/rgb_trns.png",
    "odd/exif6.png",
    "odd/lossy_alpha.webp",
    "odd/lossless_alpha.webp",
    "odd/frames.webp",
    "odd/frames.gif",
    "odd/offset.gif",
    "odd/palette.bmp",
    "odd/rgba_masks.bmp",
    "odd/no_palette.gif",
];

fn check(bytes: &[u8]) {
    // Changed headers can ask for much; that costs time here and proves nothing more.
    let limits = recipe::Image { max_pixels: 1 << 18, ..recipe::Image::default() };
    for (_, compat) in Compat::ALL {
        // Sizes are asserted inside; a panic of a decoder shows as a code of its own.
        if let Err(flaw) = decode_within(bytes, &limits, compat.rgb()) {
            assert_ne!(flaw.code, "decoder-panic", "{flaw}");
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes);
    }

    #[test]
    fn random_bytes_after_a_signature_do_not_panic(
        seed in 0..SEEDS.len(),
        kept in 4_usize..40,
        bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let start = golden(SEEDS[seed]);
        check(&[&start[..kept.min(start.len())], &bytes].concat());
    }

    #[test]
    fn changed_and_cut_files_do_not_panic(
        seed in 0..SEEDS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        near_start in any::<bool>(),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = golden(SEEDS[seed]);
        let span = if near_start { bytes.len().min(200) } else { bytes.len() };
        for (at, value) in changes {
            bytes[at.index(span)] = value;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        check(&bytes);
    }
}

/// A measured size must not depend on how much of the file was read to measure it.
#[test]
fn any_beginning_tells_the_size_that_the_whole_has_or_nothing() {
    for name in SEEDS {
        let bytes = golden(name);
        let limits = recipe::Image::default();
        let whole = inspect(&bytes, &limits, Compat::AsDisplayed.rgb()).unwrap();
        let told = |end| inspect_beginning(&bytes[..end], &limits);
        let some = (0..bytes.len()).filter_map(told);
        let mut telling = 0;
        for header in some {
            assert_eq!((header.format, header.stored), (whole.format, whole.stored), "{name}");
            telling += 1;
        }
        assert!(telling > bytes.len() / 10, "{name}: {telling} of {}", bytes.len());
    }
}
