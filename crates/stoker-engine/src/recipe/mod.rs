//! What the user asks for: one document with one section per room.
//!
//! [`Recipe`] is parsed once, at the door (stub), from TOML, JSON or a Python dict. Unknown keys are refused with a
//! suggestion, and all problems are reported at once. The rooms get their typed, checked section
//! and never validate it again. It knows no room.

mod compat;
mod reader;
mod sections;

pub use reader::Document;

pub use compat::{Alpha, Compat, ResizeKernel, RgbRules, SixteenBit, SizeRule, Table};
pub use sections::{
    Dataset, Engine, Fetch, Image, OnBadSample, OnTooLong, Pack, Pixels, Plan, Recipe, Shuffle,
    Text, TrainOn, Vision,
};
