//! What a model does with images, read from its `preprocessor_config.json`.
//!
//! The file is read as transformers 5 reads it: missing fields have the defaults of
//! `Qwen2VLImageProcessor`, top-level `min_pixels` and `max_pixels` beat `size`, and a
//! `processor_config.json` may hold it all under `image_processor`, which then beats the other file.
//! What would silently change the pixels and is not done here (another processor, another
//! resampling, a step left out) is refused.

use std::path::Path;

use serde::Deserialize;

use super::family::CLIP;
use crate::error::{Problem, too_many_files};

/// What a model does with images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Model {
    pub(super) layout: Layout,
    /// Fewest pixels after resizing.
    pub(super) min_pixels: u64,
    /// Most pixels after resizing.
    pub(super) max_pixels: u64,
}

/// What can't be changed without changing the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) patch_size: u32,
    pub(super) temporal_patch_size: u32,
    pub(super) merge_size: u32,
    pub(super) normalise: Normalise,
}

/// Mean and standard deviation per channel, for values from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Normalise {
    pub(super) mean: [f64; 3],
    pub(super) std: [f64; 3],
}

/// The classes that are one and the same algorithm.
const PROCESSORS: [&str; 3] =
    ["Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil"];

/// A billion pixels is more than any vision tower takes and keeps all sizes within 32 bits.
pub(super) const MOST_PIXELS: u64 = 1 << 30;

const BICUBIC: u32 = 3;

/// The file, with the defaults of the class.
#[derive(Deserialize)]
#[serde(default)]
struct File {
    image_processor: Option<Box<Self>>,
    image_processor_type: Option<String>,
    patch_size: u32,
    temporal_patch_size: u32,
    merge_size: u32,
    min_pixels: Option<u64>,
    max_pixels: Option<u64>,
    size: Limits,
    image_mean: [f64; 3],
    image_std: [f64; 3],
    resample: u32,
    rescale_factor: f64,
    do_resize: bool,
    do_rescale: bool,
    do_normalize: bool,
}

#[derive(Deserialize)]
struct Limits {
    shortest_edge: Option<u64>,
    longest_edge: Option<u64>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            image_processor: None,
            image_processor_type: None,
            patch_size: 14,
            temporal_patch_size: 2,
            merge_size: 2,
            min_pixels: None,
            max_pixels: None,
            size: Limits { shortest_edge: Some(56 * 56), longest_edge: Some(28 * 28 * 1280) },
            image_mean: CLIP.mean,
            image_std: CLIP.std,
            resample: BICUBIC,
            rescale_factor: 1.0 / 255.0,
            do_resize: true,
            do_rescale: true,
            do_normalize: true,
        }
    }
}

/// Reads a named file.
pub(super) fn read(path: &Path) -> Result<Model, Vec<Problem>> {
    let mut file = load(path)?;
    let file = file.image_processor.take().map_or(file, |nested| *nested);
    check(path, &file)
}

/// Reads what a model folder says, if it says anything.
pub(super) fn find(folder: &Path) -> Result<Option<Model>, Vec<Problem>> {
    let newer = folder.join("processor_config.json");
    if newer.is_file() && load(&newer)?.image_processor.is_some() {
        return read(&newer).map(Some);
    }
    let older = folder.join("preprocessor_config.json");
    if older.is_file() { read(&older).map(Some) } else { Ok(None) }
}

fn load(path: &Path) -> Result<File, Vec<Problem>> {
    let problem = |reason: String, hint: &str| vec![problem(path, &reason, hint)];
    let bytes = std::fs::read(path).map_err(|error| {
        let hint = too_many_files(&error).unwrap_or_else(|| "check the path".to_owned());
        problem(format!("can't be read ({error})"), &hint)
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| problem(format!("not understood ({error})"), "get the file anew"))
}

/// The model of a file, or all that is wrong in it.
fn check(path: &Path, file: &File) -> Result<Model, Vec<Problem>> {
    let mut problems: Vec<_> =
        unsupported(file).into_iter().map(|(reason, hint)| problem(path, &reason, hint)).collect();
    let limits =
        (file.min_pixels.or(file.size.shortest_edge), file.max_pixels.or(file.size.longest_edge));
    let (Some(min_pixels), Some(max_pixels)) = limits else {
        let reason = "size has no shortest_edge or no longest_edge";
        problems.push(problem(path, reason, "they are the fewest and the most pixels"));
        return Err(problems);
    };
    if min_pixels == 0 || min_pixels > max_pixels || max_pixels > MOST_PIXELS {
        let reason = format!("size allows {min_pixels} to {max_pixels} pixels");
        problems.push(problem(path, &reason, "a range within 1 to 1073741824 is needed"));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let layout = Layout {
        patch_size: file.patch_size,
        temporal_patch_size: file.temporal_patch_size,
        merge_size: file.merge_size,
        normalise: Normalise { mean: file.image_mean, std: file.image_std },
    };
    Ok(Model { layout, min_pixels, max_pixels })
}

/// What the file asks for and we don't do, each with a hint.
fn unsupported(file: &File) -> Vec<(String, &'static str)> {
    const NAME_A_FAMILY: &str = "Qwen2VLImageProcessor, its Fast and its Pil variant are supported; \
         if the model is of their kind, name it in vision.family";
    const REMOVE: &str = "the image processors of the Qwen-VL models don't do this; remove it";
    const SIZES: &str = "sides of 1 to 64 are supported";
    let mut found = Vec::new();
    match file.image_processor_type.as_deref() {
        Some(name) if PROCESSORS.contains(&name) => {}
        Some(name) => found.push((format!("image_processor_type is {name}"), NAME_A_FAMILY)),
        None => found.push(("image_processor_type is missing".into(), NAME_A_FAMILY)),
    }
    if file.resample != BICUBIC {
        found.push((format!("resample is {}, not 3 (bicubic)", file.resample), REMOVE));
    }
    if (file.rescale_factor * 255.0 - 1.0).abs() > 1e-9 {
        found.push((format!("rescale_factor is {}, not 1/255", file.rescale_factor), REMOVE));
    }
    let steps = [
        ("do_resize", file.do_resize),
        ("do_rescale", file.do_rescale),
        ("do_normalize", file.do_normalize),
    ];
    for (step, _) in steps.into_iter().filter(|(_, done)| !done) {
        found.push((format!("{step} is false"), REMOVE));
    }
    let sides = [
        ("patch_size", file.patch_size),
        ("temporal_patch_size", file.temporal_patch_size),
        ("merge_size", file.merge_size),
    ];
    for (name, side) in sides.into_iter().filter(|(_, side)| !(1..=64).contains(side)) {
        found.push((format!("{name} is {side}"), SIZES));
    }
    if file.image_std.iter().any(|std| !(*std > 0.0 && std.is_finite())) {
        found.push((format!("image_std is {:?}", file.image_std), "it must be above zero"));
    }
    found
}

/// A problem with a file, under the key that would name another.
fn problem(path: &Path, reason: &str, hint: &str) -> Problem {
    Problem {
        path: "vision.config".to_owned(),
        reason: format!("{reason}: {}", path.display()),
        hint: Some(hint.to_owned()),
    }
}
