//! Every door that foreign bytes come in by, as functions of bytes: for tests that mutate what is
//! known, and for fuzzers that look for what is not (`make fuzz`).
//!
//! A door may refuse what it likes. It must not panic, hang, or take memory that is not limited by
//! how much it was given; a panic that the engine would have caught is one too.

use crate::dataset::fuzz as dataset;
use crate::fetch::fuzz as fetch;
use crate::image::{Decoder, fuzz as jpeg, inspect, inspect_beginning};
use crate::plan::Cursor;
use crate::recipe::{self, Compat, Recipe};
use crate::sample::Decoded;
use crate::text::fuzz as text;
use crate::vision::{Preprocessor, Scratch};

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// All doors, by name.
pub const TARGETS: [(&str, Target); 17] = [
    ("image", image),
    ("huffman", jpeg::huffman),
    ("colours", jpeg::colours),
    ("line", dataset::line),
    ("address", dataset::address),
    ("text", dataset::text),
    ("archive", dataset::archive),
    ("mds-shard", dataset::mds_shard),
    ("mds-index", dataset::mds_index),
    ("energon", dataset::energon_split),
    ("table", dataset::table),
    ("index", dataset::index),
    ("listing", fetch::listing),
    ("answer", fetch::answer),
    ("cursor", cursor),
    ("recipe", recipe_text),
    ("specials", text::specials),
];

/// An image in any format: header, decoder, resizing, patches.
fn image(bytes: &[u8]) {
    thread_local! {
        static VISION: Preprocessor = {
            let vision = recipe::Vision {
                family: Some("qwen3-vl".into()),
                min_pixels: Some(4096),
                max_pixels: Some(16384),
                ..recipe::Vision::default()
            };
            Preprocessor::open(None, &vision, Compat::AsDisplayed).expect("it is a known family")
        };
    }
    let limits = recipe::Image { max_pixels: 1 << 18, max_scans: 20, ..recipe::Image::default() };
    let begun = inspect_beginning(&bytes[..bytes.len().min(4096)], &limits);
    for compat in [Compat::AsDisplayed, Compat::QwenVlUtils] {
        let rules = compat.rgb();
        let Ok(header) = inspect(bytes, &limits, rules) else { continue };
        if let Some(begun) = begun {
            assert_eq!((begun.format, begun.stored), (header.format, header.stored));
        }
        let mut decoder = Decoder::default();
        match decoder.decode(bytes, &header, &limits, rules) {
            Ok(image) => {
                let size = header.size();
                assert_eq!(image.pixels.len() as u64, size.pixels() * 3);
                assert_eq!(
                    (image.width, image.height),
                    (size.width as usize, size.height as usize)
                );
            }
            Err(flaw) => assert_ne!(flaw.code, "decoder-panic", "{flaw}"),
        }
        VISION.with(|vision| {
            let Ok(plan) = vision.plan(header.size()) else { return };
            let limits = recipe::Image { approximate: true, ..limits.clone() };
            let opened = decoder.open(bytes, &header, plan.resized, &limits, rules);
            let Ok(opened) = opened else { return };
            let is_whole = matches!(opened, Decoded::Whole(_));
            let row = vision.columns() * vision.dtype().size();
            let mut slot = vec![0; plan.grid.patches() * row];
            let written = vision.write(opened, &plan, &mut slot, &mut Scratch::default());
            assert!(written.is_ok() || !is_whole, "nothing is wrong with pixels that are there");
        });
    }
}

/// A state that was saved.
fn cursor(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(cursor) = Cursor::from_json(text) {
        let json = serde_json::to_string(&cursor).expect("it is plain data");
        assert_eq!(Cursor::from_json(&json).ok(), Some(cursor));
    }
}

/// A recipe in both notations; sizes, durations and patterns stand in it.
fn recipe_text(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    for recipe in [Recipe::from_toml(text), Recipe::from_json(text)] {
        match recipe {
            Ok(recipe) => drop(recipe),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
