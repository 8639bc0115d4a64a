//! Pixels that Pillow, torchvision, transformers and qwen-vl-utils made.

use serde_json::{Map, Value};

use super::{decode_with, golden, sha256};
use crate::image::Decoder;
use crate::image::inspect;
use crate::recipe::{self, Compat};

fn table() -> Map<String, Value> {
    serde_json::from_slice(&golden("image_rgb.json")).unwrap()
}

/// Where a preset does not follow its reference: torchvision knows EXIF in JPEG and PNG only, and
/// there only orientations of type SHORT.
const EXCEPT: [(&str, &str); 2] =
    [("odd/exif8.webp", "transformers-path"), ("odd/long_exif.jpg", "transformers-path")];

#[test]
fn every_preset_gives_the_pixels_of_its_reference() {
    let mut compared = 0;
    let mut differ = Vec::new();
    for (name, routes) in table() {
        let bytes = golden(&name);
        for (preset, compat) in Compat::ALL {
            let Some([width, height, sha]) =
                routes.get(preset).and_then(Value::as_array).map(Vec::as_slice)
            else {
                continue;
            };
            if EXCEPT.contains(&(&name, preset)) {
                continue;
            }
            compared += 1;
            match decode_with(&bytes, compat.rgb()) {
                Ok(image) => {
                    let same = (width, height) == (&image.width.into(), &image.height.into())
                        && *sha == sha256(&image.pixels);
                    if !same {
                        differ.push(format!("{name} {preset}: {} x {}", image.width, image.height));
                    }
                }
                Err(flaw) => differ.push(format!("{name} {preset}: {flaw}")),
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(compared > 200, "only {compared} were compared");
}

#[test]
fn a_decoder_that_has_seen_other_images_gives_the_same_pixels() {
    let (limits, rules) = (recipe::Image::default(), Compat::AsDisplayed.rgb());
    let mut reused = Decoder::default();
    let names: Vec<String> = table().into_iter().map(|(name, _)| name).collect();
    for name in names.iter().chain(names.iter().rev()) {
        let bytes = golden(name);
        let header = inspect(&bytes, &limits, rules).unwrap();
        let image = reused.decode(&bytes, &header, &limits, rules).unwrap();
        assert_eq!(*image, decode_with(&bytes, rules).unwrap(), "{name}");
    }
}

#[test]
fn decoding_jpegs_settles_into_memory_that_is_kept() {
    let (limits, rules) = (recipe::Image::default(), Compat::AsDisplayed.rgb());
    let mut decoder = Decoder::default();
    let files = ["a_444", "b_420_odd", "c_prog", "k_exif6", "l_cmyk"];
    let mut pass = || {
        for file in files {
            let bytes = golden(&format!("images/{file}.jpg"));
            let header = inspect(&bytes, &limits, rules).unwrap();
            decoder.decode(&bytes, &header, &limits, rules).unwrap();
        }
        [&decoder.image.pixels, &decoder.raw, &decoder.stored].map(Vec::as_ptr)
    };
    let first = pass();
    assert_eq!(first, pass());
}
