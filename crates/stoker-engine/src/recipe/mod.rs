//! What the user asks for: one document with one section per room.
//!
//! A recipe is written in TOML, JSON or as a Python dict, and read once, at the door: a
//! [`Document`] is what was written (with overrides such as `pack.batch-size=8` applied), a
//! [`Recipe`] is what was meant, typed and checked. Unknown keys and sections are refused with a
//! suggestion, and all problems are reported at once. The rooms get their section and never
//! validate it again. This room knows no other.
//!
//! Keys are kebab-case; snake_case spellings of them (as Python dicts have them) mean the same.
//! `null`/`None` means the default. Sizes are bytes (`1048576`) or text (`"256MiB"`, `"2GB"`,
//! `"64 KiB"`); durations are seconds (`5`, `0.25`) or text (`"5s"`, `"250ms"`). A relative path is
//! relative to where it was written: in a file, to the folder of that file; elsewhere (a dict, an
//! override), to the working directory.

mod cache;
mod choices;
mod compat;
mod dataset;
mod decimal;
mod document;
mod fetch;
mod json;
mod mixture;
pub mod patterns;
mod read;
mod reader;
mod sections;
mod suggest;
mod units;
mod write;

use std::path::Path;

use serde_json::Value;

pub use cache::Cache;
pub use compat::{Alpha, Compat, ResizeKernel, RgbRules, SixteenBit, SizeRule, Table};
pub use dataset::{Dataset, Fields, Format};
pub use decimal::Decimal;
pub use document::Document;
pub use fetch::{Addressing, Fetch};
pub use mixture::{Component, Share, Stage};
pub use sections::{
    BatchLayout, Engine, Image, OnBadSample, OnTooLong, Pack, Pixels, Plan, Recipe, Remainder,
    Shuffle, Text, TrainOn, Vision,
};

pub(crate) use suggest::nearest;

use crate::error::Result;

impl Recipe {
    /// Reads TOML.
    pub fn from_toml(text: &str) -> Result<Self> {
        Document::from_toml(text)?.recipe()
    }

    /// Reads JSON.
    pub fn from_json(text: &str) -> Result<Self> {
        Document::from_json(text)?.recipe()
    }

    /// Reads a value, such as a Python dict makes.
    pub fn from_value(value: Value) -> Result<Self> {
        Document::from_value(value)?.recipe()
    }

    /// Reads a file named `*.toml` or `*.json`; its relative paths start from its folder.
    pub fn from_file(path: &Path) -> Result<Self> {
        Document::from_file(path)?.recipe()
    }
}
