//! stub
use std::path::Path;

use super::{Pixels, Recipe};
use crate::error::{Error, Problem, Result};

impl Recipe {
    /// From a file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let _ = path;
        Ok(Self::default())
    }
    /// From a value.
    pub fn from_value(value: serde_json::Value) -> Result<Self> {
        let mut recipe = Self::default();
        recipe.plan.epochs = value.pointer("/plan/epochs").and_then(serde_json::Value::as_u64);
        if let Some(source) = value.pointer("/dataset/source").and_then(serde_json::Value::as_str) {
            source.clone_into(&mut recipe.dataset.source);
        }
        recipe.vision.pixels = match value.pointer("/vision/pixels").and_then(|v| v.as_str()) {
            None | Some("f32") => Pixels::F32,
            Some("bf16") => Pixels::Bf16,
            Some("u8") => Pixels::U8,
            Some(other) => {
                return Err(Error::Recipe(vec![Problem {
                    path: "vision.pixels".into(),
                    reason: format!("{other:?} is not one of f32, bf16, u8"),
                    hint: Some("did you mean \"f32\"?".into()),
                }]));
            }
        };
        Ok(recipe)
    }
}
