//! Parquet shards, in the layout of Hugging Face: images are structs of bytes and path.
//!
//! Rows of a Parquet file can't be read at random: the images of a whole row group often stand in
//! one page, compressed together. So the same pass that builds the index takes the rows out of it:
//! for each its record as JSON, and behind it its images as they are.

mod build;
mod delta;
mod page;
mod rows;
mod schema;
mod shard;
#[cfg(test)]
mod tests;

pub(super) use build::{Built, Files, Limits, Stop, build};
