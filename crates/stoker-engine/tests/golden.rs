//! From the file to `pixel_values`, byte for byte what transformers computes: every golden image,
//! four configurations, three routes, each chosen by its `compat`.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use stoker_engine::image::{Decoder, inspect};
use stoker_engine::recipe::{self, Compat};
use stoker_engine::sample::Decoded;
use stoker_engine::vision::{Preprocessor, Scratch};

/// A 16-bit file by path shows a bug of transformers (values up to 512), which is not reproduced.
const KNOWN_BUG: (&str, &str) = ("m_i16.png", "torchvision_path");

const ROUTES: [(&str, Compat); 3] = [
    ("torchvision_path", Compat::TransformersPath),
    ("torchvision_pil_object", Compat::TransformersPil),
    ("pil_backend_pil_object", Compat::TransformersPilBackend),
];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden")
}

/// `(grid, sha256)` of an image, or the flaw.
fn computed(config: &Path, image: &Path, compat: Compat) -> Result<(Vec<u64>, String), String> {
    let section = recipe::Vision {
        config: Some(config.to_str().unwrap().to_owned()),
        ..recipe::Vision::default()
    };
    let vision = Preprocessor::open(None, &section, compat).unwrap();
    let (bytes, limits) = (fs::read(image).unwrap(), recipe::Image::default());
    let header = inspect(&bytes, &limits, compat.rgb()).unwrap();
    let plan = vision.plan(header.size()).map_err(|flaw| flaw.to_string())?;
    let mut decoder = Decoder::default();
    let mut patches = vec![0; plan.grid.patches() * vision.columns() * vision.dtype().size()];
    let mut read = patches.clone();
    let whole = Decoded::Whole(decoder.decode(&bytes, &header, &limits, compat.rgb()).unwrap());
    vision.write(whole, &plan, &mut patches, &mut Scratch::default()).unwrap();
    let opened = decoder.open(&bytes, &header, plan.resized, &limits, compat.rgb()).unwrap();
    vision.write(opened, &plan, &mut read, &mut Scratch::default()).unwrap();
    assert!(read == patches, "decoded as it is read or at once");
    let sha =
        Sha256::digest(&patches).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let grid = [plan.grid.t, plan.grid.h, plan.grid.w].map(u64::from).to_vec();
    Ok((grid, sha))
}

#[test]
fn pixel_values_equal_transformers_for_every_image_configuration_and_route() {
    let text = fs::read_to_string(golden().join("image_cases.json")).unwrap();
    let golden_cases: Value = serde_json::from_str(&text).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut compared, mut wrong) = (0, Vec::new());
    for case in golden_cases["cases"].as_array().unwrap() {
        let (config, image) = (case["config"].as_str().unwrap(), case["image"].as_str().unwrap());
        let path = folder.path().join(format!("{config}.json"));
        let mut values = golden_cases["configs"][config].clone();
        values["image_processor_type"] = "Qwen2VLImageProcessor".into();
        fs::write(&path, values.to_string()).unwrap();
        for (route, compat) in ROUTES {
            if (image, route) == KNOWN_BUG {
                continue;
            }
            let expected = &case[route];
            let file = golden().join("images").join(image);
            let equal = match computed(&path, &file, compat) {
                Ok((grid, sha)) => {
                    expected["grid"] == Value::from(grid) && expected["sha256"] == sha
                }
                Err(flaw) => expected["error"].is_string() && flaw.contains("aspect-ratio"),
            };
            compared += 1;
            if !equal {
                wrong.push(format!("{config} {image} {route}"));
            }
        }
    }
    assert_eq!(compared, 16 * 4 * 3 - 4);
    assert!(wrong.is_empty(), "{} of {compared} differ: {wrong:#?}", wrong.len());
}
