//! The engine of stoker: chat samples with images in object storage become finished batches for
//! vision-language trainers.
//!
//! The tree is the data flow. Each folder below is a *room* that data passes through, in this
//! order; the rooms do not know each other and meet only in [`engine`], whose reference loop
//! ([`engine::reference`]) is the specification of everything this crate does. What flows between
//! the rooms is in [`sample`]: the life of one sample, one type per stage.

// ── the words ────────────────────────────────────────────────
pub mod error;
pub mod metrics;
pub mod sample;
mod simd;
mod thread;

// ── the rooms, in the order that data flows ──────────────────
pub mod recipe;

pub mod plan;

pub mod dataset;

pub mod fetch;

pub mod image;

pub mod vision;

pub mod text;

pub mod pack;

// ── where the rooms meet ─────────────────────────────────────
pub mod engine;
pub mod loader;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
