//! The data that all is measured on, the same on every machine: two photographs of a megapixel, and
//! chats about one of them.

use std::fs;
use std::path::Path;

use serde_json::json;
use stoker_engine::testing::{ChatDataset, encode_jpeg, photo};

/// The photograph whose sides are whole patches of every model here: it needs no resizing.
pub(crate) const WHOLE: Photo = Photo { name: "whole.jpg", width: 1152, height: 864 };

/// The photograph that is resized along both sides, as most are.
pub(crate) const ODD: Photo = Photo { name: "odd.jpg", width: 1160, height: 870 };

/// The chats.
pub(crate) const CHATS: &str = "chats.jsonl";

/// How many chats there are: as many as eight batches.
pub(crate) const ROWS: u64 = 64;

const SEED: u64 = 5;
const QUALITY: u8 = 88;

/// A photograph's name and sides.
pub(crate) struct Photo {
    pub(crate) name: &'static str,
    width: usize,
    height: usize,
}

/// Writes all of it.
pub(crate) fn make(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (seed, Photo { name, width, height }) in [(SEED, WHOLE), (SEED, ODD)] {
        let pixels = photo(seed, width, height);
        fs::write(folder.join(name), encode_jpeg(&pixels, width, height, QUALITY)).unwrap();
    }
    // Those with one image, which becomes the odd one: the most usual kind.
    let samples = ChatDataset::new(SEED, 4 * ROWS as usize, 8..=8);
    let about_one = (0..samples.samples()).map(|number| samples.sample(number));
    let about_one = about_one.filter(|sample| {
        let content = sample["messages"][0]["content"].as_array();
        content
            .is_some_and(|parts| parts.iter().filter(|part| part["type"] == "image").count() == 1)
    });
    let lines = about_one.take(ROWS as usize).map(|mut sample| {
        sample["messages"][0]["content"][0]["image"] = json!(ODD.name);
        format!("{sample}\n")
    });
    fs::write(folder.join(CHATS), lines.collect::<String>()).unwrap();
}
