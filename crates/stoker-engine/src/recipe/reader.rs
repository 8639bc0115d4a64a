//! stub
use serde_json::Value;
use std::path::Path;

use super::{Pixels, Recipe};
use crate::error::{Error, Problem, Result};

/// What was written.
#[derive(Debug)]
pub struct Document(Value);

impl Document {
    /// From a file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).expect("stub");
        Ok(Self(serde_json::from_str(&text).expect("stub")))
    }
    /// From a value.
    pub fn from_value(value: Value) -> Result<Self> {
        Ok(Self(value))
    }
    /// Overrides.
    pub fn set_value(&mut self, path: &str, value: Value) {
        let (section, key) = path.split_once('.').expect("stub");
        self.0[section][key] = value;
    }
    /// The recipe.
    pub fn recipe(self) -> Result<Recipe> {
        Recipe::from_value(&self.0)
    }
}

impl Recipe {
    /// From a value.
    fn from_value(value: &Value) -> Result<Self> {
        let mut recipe = Self::default();
        recipe.plan.seed = value.pointer("/plan/seed").and_then(Value::as_u64).unwrap_or(0);
        recipe.plan.epochs = value.pointer("/plan/epochs").and_then(Value::as_u64);
        if let Some(source) = value.pointer("/dataset/source").and_then(Value::as_str) {
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
