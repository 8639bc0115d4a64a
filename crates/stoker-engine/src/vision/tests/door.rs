//! What `Preprocessor::open` takes and refuses.

use std::path::Path;

use super::super::Preprocessor;
use crate::error::{Error, Problem};
use crate::recipe::{Compat, Vision};
use crate::sample::Size;

const PIXELS: &str = r#""min_pixels": 3136, "max_pixels": 12845056"#;

/// A model folder with the given files.
fn folder(files: &[(&str, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// A configuration of the supported class with more fields.
fn config(fields: &str) -> String {
    format!(r#"{{"image_processor_type": "Qwen2VLImageProcessorFast", {fields}}}"#)
}

fn problems(folder: Option<&Path>, config: &Vision) -> Vec<Problem> {
    match Preprocessor::open(folder, config, Compat::AsDisplayed) {
        Err(Error::Recipe(problems)) => problems,
        other => panic!("not refused as a recipe: {other:?}"),
    }
}

fn family(name: &str) -> Vision {
    Vision { family: Some(name.into()), ..Vision::default() }
}

fn limits(preprocessor: &Preprocessor) -> (u64, u64) {
    (preprocessor.bounds.min_pixels, preprocessor.bounds.max_pixels)
}

fn found(files: &[(&str, String)]) -> Preprocessor {
    let folder = folder(files);
    Preprocessor::open(Some(folder.path()), &Vision::default(), Compat::AsDisplayed).unwrap()
}

#[test]
fn each_family_has_the_numbers_of_its_checkpoints() {
    for (name, columns, pixels) in [
        ("qwen2-vl", 1176, (3136, 12_845_056)),
        ("qwen2.5-vl", 1176, (3136, 12_845_056)),
        ("qwen3-vl", 1536, (65_536, 16_777_216)),
        ("qwen3.5", 1536, (65_536, 16_777_216)),
    ] {
        let preprocessor = Preprocessor::open(None, &family(name), Compat::AsDisplayed).unwrap();
        assert_eq!((preprocessor.columns(), preprocessor.merge_size()), (columns, 2));
        assert_eq!(limits(&preprocessor), pixels);
    }
}

#[test]
fn unknown_families_are_refused_with_the_nearest_name() {
    for (wrong, right) in
        [("qwen3vl", "qwen3-vl"), ("Qwen2_5_VL", "qwen2.5-vl"), ("qwen35", "qwen3.5")]
    {
        let problems = problems(None, &family(wrong));
        assert_eq!(problems[0].path, "vision.family");
        let hint = problems[0].hint.as_deref().unwrap();
        assert!(hint.starts_with(&format!("did you mean `{right}`?")), "{wrong}: {hint}");
    }
    let hint = problems(None, &family("llava"))[0].hint.clone().unwrap();
    assert!(hint.starts_with("supported: qwen2-vl, qwen2.5-vl, qwen3-vl, qwen3.5"), "{hint}");
}

#[test]
fn a_recipe_without_family_and_file_is_told_what_to_name() {
    for folder in [None, Some(folder(&[]))] {
        let problems = problems(folder.as_ref().map(tempfile::TempDir::path), &Vision::default());
        assert_eq!(problems[0].path, "vision.family");
        assert!(problems[0].hint.as_deref().unwrap().contains("preprocessor_config.json"));
    }
}

#[test]
fn top_level_pixel_limits_beat_size() {
    let size = r#""size": {"shortest_edge": 1, "longest_edge": 2}"#;
    let both = config(&format!("{size}, {PIXELS}"));
    assert_eq!(limits(&found(&[("preprocessor_config.json", both)])), (3136, 12_845_056));
    let by_name = r#""size": {"min_pixels": 1, "max_pixels": 2}"#;
    let with_size_by_name = config(&format!("{by_name}, {PIXELS}"));
    let preprocessor = found(&[("preprocessor_config.json", with_size_by_name)]);
    assert_eq!(limits(&preprocessor), (3136, 12_845_056));
}

#[test]
fn missing_fields_have_the_defaults_of_the_class() {
    let preprocessor = found(&[("preprocessor_config.json", config(r#""size_divisor": null"#))]);
    assert_eq!(limits(&preprocessor), (3136, 1_003_520));
    assert_eq!(preprocessor.columns(), 1176);
}

#[test]
fn a_nested_processor_config_beats_the_older_file() {
    let nested = format!(r#"{{"image_processor": {}}}"#, config(r#""patch_size": 16"#));
    let older = ("preprocessor_config.json", config(PIXELS));
    let both = found(&[("processor_config.json", nested), older.clone()]);
    assert_eq!(both.columns(), 1536);
    let flat = ("processor_config.json", r#"{"processor_class": "Qwen3VLProcessor"}"#.to_owned());
    assert_eq!(found(&[flat, older]).columns(), 1176);
}

#[test]
fn a_file_that_can_not_be_read_is_named() {
    let missing = Vision { config: Some("no/such.json".into()), ..Vision::default() };
    let missing = problems(None, &missing);
    assert_eq!(missing[0].path, "vision.config");
    assert!(missing[0].reason.starts_with("can't be read ("), "{missing:?}");
    assert!(missing[0].reason.ends_with("): no/such.json"), "{missing:?}");
    let broken = folder(&[("preprocessor_config.json", "{".into())]);
    let broken = problems(Some(broken.path()), &Vision::default());
    assert_eq!(broken[0].path, "vision.config");
    assert!(broken[0].reason.starts_with("not understood ("), "{broken:?}");
    assert!(broken[0].reason.ends_with("preprocessor_config.json"), "{broken:?}");
}

#[test]
fn files_that_ask_for_something_else_are_refused_with_all_their_problems() {
    for (fields, word) in [
        (r#""resample": 2"#, "resample"),
        (r#""rescale_factor": 0.5"#, "rescale_factor"),
        (r#""do_resize": false"#, "do_resize"),
        (r#""do_rescale": false"#, "do_rescale"),
        (r#""do_normalize": false"#, "do_normalize"),
        (r#""patch_size": 0"#, "patch_size"),
        (r#""merge_size": 100"#, "merge_size"),
        (r#""temporal_patch_size": 0"#, "temporal_patch_size"),
        (r#""image_std": [1, 0, 1]"#, "image_std"),
        (r#""size": {"min_pixels": 1, "max_pixels": 2}"#, "shortest_edge"),
        (r#""min_pixels": 100, "max_pixels": 50"#, "100 to 50 pixels"),
        (r#""max_pixels": 99999999999"#, "99999999999 pixels"),
    ] {
        let folder = folder(&[("preprocessor_config.json", config(fields))]);
        let problems = problems(Some(folder.path()), &Vision::default());
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].reason.contains(word) && problems[0].hint.is_some(), "{problems:?}");
    }
    let other = r#"{"image_processor_type": "CLIPImageProcessor", "resample": 1}"#;
    let folder = folder(&[("preprocessor_config.json", other.into())]);
    let problems = problems(Some(folder.path()), &Vision::default());
    assert_eq!(problems.len(), 2);
    assert!(problems[0].reason.contains("CLIPImageProcessor"));
    assert!(problems[0].hint.as_deref().unwrap().contains("Qwen2VLImageProcessor"));
}

#[test]
fn a_family_beside_a_file_must_agree_with_it() {
    let folder = folder(&[("preprocessor_config.json", config(PIXELS))]);
    let open = |name| Preprocessor::open(Some(folder.path()), &family(name), Compat::AsDisplayed);
    assert!(open("qwen2-vl").is_ok());
    assert_eq!(problems(Some(folder.path()), &family("qwen3-vl"))[0].path, "vision.family");
}

#[test]
fn limits_of_the_recipe_beat_those_of_the_model_and_are_checked() {
    let with = |min_pixels, max_pixels| Vision { min_pixels, max_pixels, ..family("qwen3-vl") };
    let small = with(Some(4096), Some(32_768));
    let preprocessor = Preprocessor::open(None, &small, Compat::AsDisplayed).unwrap();
    let plan = preprocessor.plan(Size { width: 1000, height: 1000 }).unwrap();
    assert_eq!(plan.resized, Size { width: 160, height: 160 });
    for (bad, path) in [
        (with(None, Some(50_000)), "vision.max-pixels"),
        (with(Some(1 << 25), None), "vision.min-pixels"),
        (with(Some(0), None), "vision.min-pixels"),
        (with(None, Some(1 << 31)), "vision.max-pixels"),
    ] {
        let problems = problems(None, &bad);
        assert_eq!(problems[0].path, path);
        assert!(problems[0].hint.is_some());
    }
}

#[test]
fn qwen_vl_utils_has_limits_of_its_own() {
    let of = |name| Preprocessor::open(None, &family(name), Compat::QwenVlUtils).unwrap();
    assert_eq!(limits(&of("qwen3-vl")), (4 * 1024, 16_384 * 1024));
    assert_eq!(limits(&of("qwen2-vl")), (4 * 784, 16_384 * 784));
}
