//! The room `vision` against what the reference implementations gave: `testdata/golden/vision`.
#![expect(clippy::unwrap_used, reason = "a test that can't read its golden files fails")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use stoker_engine::recipe::{self, Compat, Pixels};
use stoker_engine::sample::{Decoded, Grid, ImagePlan, RgbImage, Size};
use stoker_engine::vision::{Preprocessor, Scratch};

/// The two references, by the preset that follows each.
const ROUTES: [(&str, Compat); 2] =
    [("torchvision", Compat::TransformersPath), ("pillow13", Compat::TransformersPilBackend)];

#[derive(Deserialize)]
struct Golden {
    configs: serde_json::Map<String, serde_json::Value>,
    sizes: Vec<SizeRow>,
    photo_resizes: Vec<serde_json::Value>,
    generated_resizes: Vec<serde_json::Value>,
    patches: Vec<serde_json::Value>,
}

/// Factor, fewest and most pixels, height, width; what transformers and qwen-vl-utils make of it.
type SizeRow = (u32, u64, u64, u32, u32, Option<[u32; 2]>, Option<[u32; 2]>);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/vision")
}

fn golden() -> Golden {
    serde_json::from_slice(&std::fs::read(folder().join("golden.json")).unwrap()).unwrap()
}

/// Reads a binary PPM as `make.py` writes it.
fn photo(name: &str) -> RgbImage {
    let bytes = std::fs::read(folder().join(format!("{name}.ppm"))).unwrap();
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    assert_eq!(lines.next(), Some(&b"P6"[..]));
    let sides = std::str::from_utf8(lines.next().unwrap()).unwrap();
    let (width, height) = sides.split_once(' ').unwrap();
    assert_eq!(lines.next(), Some(&b"255"[..]));
    let pixels = lines.next().unwrap().to_vec();
    RgbImage { width: width.parse().unwrap(), height: height.parse().unwrap(), pixels }
}

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn family(name: &str) -> recipe::Vision {
    recipe::Vision { family: Some(name.into()), ..Default::default() }
}

fn sides(value: &serde_json::Value) -> (usize, usize) {
    let side = |index: usize| value[index].as_u64().unwrap() as usize;
    (side(0), side(1))
}

/// The preset's resampler, to any size.
fn resize(image: &RgbImage, (height, width): (usize, usize), compat: Compat) -> Vec<u8> {
    let preprocessor = Preprocessor::open(None, &family("qwen3-vl"), compat).unwrap();
    let resized = Size { width: width as u32, height: height as u32 };
    let plan = ImagePlan { resized, grid: Grid { t: 1, h: 0, w: 0 } };
    let whole = Decoded::Whole(image);
    preprocessor.resize(whole, &plan, &mut Scratch::default()).unwrap().pixels
}

/// What `generated` of `make.py` gives.
fn generated(kind: u64, (height, width): (usize, usize)) -> RgbImage {
    let mut state = (height * 65_536 + width) as u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as usize
    };
    let pixels = (0..height * width * 3).map(|index| match (kind, next()) {
        (1, value) => u8::from(value >= 128) * 255,
        (2, value) => ((index / 7 + value / 32) % 256) as u8,
        (_, value) => value as u8,
    });
    RgbImage { width, height, pixels: pixels.collect() }
}

#[test]
fn sizes_equal_both_smart_resize_functions() {
    let golden = golden();
    for (factor, min_pixels, max_pixels, height, width, transformers, utils) in &golden.sizes {
        let mut config = family(if *factor == 32 { "qwen3-vl" } else { "qwen2-vl" });
        (config.min_pixels, config.max_pixels) = (Some(*min_pixels), Some(*max_pixels));
        let rules = [(Compat::AsDisplayed, transformers), (Compat::QwenVlUtils, utils)];
        for (compat, expected) in rules {
            let preprocessor = Preprocessor::open(None, &config, compat).unwrap();
            let plan = preprocessor.plan(Size { width: *width, height: *height });
            let found = plan.as_ref().ok().map(|plan| [plan.resized.height, plan.resized.width]);
            assert_eq!(found, *expected, "{height}x{width} by {factor}, {compat:?}");
            if let Ok(ImagePlan { resized, grid }) = plan {
                let patch = factor / 2;
                let covered = Size { width: grid.w * patch, height: grid.h * patch };
                assert_eq!((grid.t, covered), (1, resized));
            }
        }
    }
}

#[test]
fn resized_photos_equal_torchvision_and_pillow_byte_for_byte() {
    for row in golden().photo_resizes {
        let image = photo(row["image"].as_str().unwrap());
        for (route, compat) in ROUTES {
            let pixels = resize(&image, sides(&row["to"]), compat);
            assert_eq!(sha(&pixels), row[route], "{route} {row}");
        }
    }
}

#[test]
fn resized_noise_of_any_size_equals_torchvision_and_pillow_byte_for_byte() {
    for row in golden().generated_resizes {
        let image = generated(row["kind"].as_u64().unwrap(), sides(&row["size"]));
        for (route, compat) in ROUTES {
            let pixels = resize(&image, sides(&row["to"]), compat);
            assert_eq!(sha(&pixels), row[route], "{route} {row}");
        }
    }
}

#[test]
fn pixel_values_equal_transformers_processors_byte_for_byte() {
    let golden = golden();
    let folder = tempfile::tempdir().unwrap();
    let mut scratch = Scratch::default();
    for row in golden.patches {
        let mut config = golden.configs[row["config"].as_str().unwrap()].clone();
        config["image_processor_type"] = "Qwen2VLImageProcessor".into();
        let file = folder.path().join("preprocessor_config.json");
        std::fs::write(file, config.to_string()).unwrap();
        let image = photo(row["image"].as_str().unwrap());
        for (route, compat) in ROUTES {
            let preprocessor =
                Preprocessor::open(Some(folder.path()), &recipe::Vision::default(), compat)
                    .unwrap();
            let size = Size { width: image.width as u32, height: image.height as u32 };
            let plan = preprocessor.plan(size).unwrap();
            assert_eq!(row["grid"], serde_json::json!([plan.grid.t, plan.grid.h, plan.grid.w]));
            assert_eq!(config["patch_size"].as_u64().unwrap().pow(2) * 6, {
                preprocessor.columns() as u64
            });
            let mut out = vec![0; plan.grid.patches() * preprocessor.columns() * 4];
            let whole = Decoded::Whole(&image);
            preprocessor.write(whole, &plan, &mut out, &mut scratch).unwrap();
            assert_eq!(sha(&out), row[route], "{route} {} {}", row["config"], row["image"]);
        }
    }
}

#[test]
fn bf16_is_f32_rounded_and_u8_finished_is_f32() {
    let image = photo("a_444.jpg");
    let size = Size { width: image.width as u32, height: image.height as u32 };
    for name in ["qwen2-vl", "qwen3-vl"] {
        let write = |pixels| {
            let config = recipe::Vision { pixels, ..family(name) };
            let preprocessor = Preprocessor::open(None, &config, Compat::AsDisplayed).unwrap();
            let plan = preprocessor.plan(size).unwrap();
            let elements = plan.grid.patches() * preprocessor.columns();
            let mut out = vec![0; elements * preprocessor.dtype().size()];
            let whole = Decoded::Whole(&image);
            preprocessor.write(whole, &plan, &mut out, &mut Scratch::default()).unwrap();
            (out, preprocessor)
        };
        let (f32_bytes, _) = write(Pixels::F32);
        let values: Vec<_> =
            f32_bytes.as_chunks().0.iter().copied().map(f32::from_ne_bytes).collect();
        let (bf16_bytes, _) = write(Pixels::Bf16);
        let bf16 = bf16_bytes.as_chunks().0.iter().copied().map(half::bf16::from_ne_bytes);
        assert!(bf16.eq(values.iter().copied().map(half::bf16::from_f32)), "{name}");
        let (bytes, preprocessor) = write(Pixels::U8);
        let finished = finish(&bytes, &preprocessor);
        assert!(finished == values, "{name}");
    }
}

/// What the device does with `u8` pixels.
fn finish(bytes: &[u8], preprocessor: &Preprocessor) -> Vec<f32> {
    let finish = preprocessor.finish();
    let area = (finish.patch_size * finish.patch_size) as usize;
    assert_eq!(preprocessor.columns(), 3 * area);
    let mut values = Vec::new();
    for (index, plane) in bytes.chunks_exact(area).enumerate() {
        let (mean, std) = (finish.mean[index % 3], finish.std[index % 3]);
        for _ in 0..finish.temporal_patch_size {
            values.extend(plane.iter().map(|byte| (f32::from(*byte) - mean) / std));
        }
    }
    values
}
