//! Model families as data: what each does with images.
//!
//! All of them share one algorithm, transformers' `Qwen2VLImageProcessor`, and differ in numbers.
//! Source: the `preprocessor_config.json` of the published checkpoints (Qwen/Qwen2-VL-7B-Instruct,
//! Qwen/Qwen2.5-VL-7B-Instruct, Qwen/Qwen3-VL-8B-Instruct, Qwen/Qwen3.5-9B and their siblings).

use super::config::{Layout, Model, Normalise};

/// A family of models that share a processor configuration.
#[derive(Debug)]
pub(super) struct Family {
    /// As recipes name it.
    pub(super) name: &'static str,
    /// What its checkpoints say.
    pub(super) model: Model,
}

/// The families that are known by name.
pub(super) const FAMILIES: [Family; 4] = [
    Family { name: "qwen2-vl", model: QWEN2 },
    Family { name: "qwen2.5-vl", model: QWEN2 },
    Family { name: "qwen3-vl", model: QWEN3 },
    Family { name: "qwen3.5", model: QWEN3 },
];

/// The mean and deviation of OpenAI's CLIP.
pub(super) const CLIP: Normalise = Normalise {
    mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
    std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
};

const QWEN2: Model = Model {
    layout: Layout { patch_size: 14, temporal_patch_size: 2, merge_size: 2, normalise: CLIP },
    min_pixels: 56 * 56,
    max_pixels: 12_845_056,
};

const QWEN3: Model = Model {
    layout: Layout {
        patch_size: 16,
        temporal_patch_size: 2,
        merge_size: 2,
        normalise: Normalise { mean: [0.5; 3], std: [0.5; 3] },
    },
    min_pixels: 65_536,
    max_pixels: 16_777_216,
};

/// The family of that name, as recipes write it.
pub(super) fn by_name(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}

/// All names, for messages.
pub(super) fn names() -> String {
    FAMILIES.map(|family| family.name).join(", ")
}

/// What to write instead of an unknown name.
pub(super) fn suggestion(name: &str) -> String {
    let bare = |name: &str| -> String {
        name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
    };
    let name = bare(name);
    let all = names();
    // below 0.8 the nearest name is mostly another model altogether
    let near = FAMILIES
        .map(|family| (strsim::jaro_winkler(&bare(family.name), &name), family.name))
        .into_iter()
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match near {
        Some((_, known)) => format!("did you mean `{known}`? Supported: {all}"),
        None => format!("supported: {all}; other models need their preprocessor_config.json"),
    }
}
