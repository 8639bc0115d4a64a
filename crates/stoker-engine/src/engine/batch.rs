//! A finished batch: named tensors over one lease.
//!
//! A batch can leave the process that made it: as its header ([`Batch::header`]) and the bytes of
//! its lease, which [`Batch::from_parts`] puts together again over whatever memory they arrive in.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::block::{Lease, Memory};
use super::windows::Outline;
use crate::error::{BadSample, Error, Result};
use crate::pack::{ALIGNMENT, Scalar, Tensor};
use crate::plan::Cursor;
use crate::sample::{BatchName, SampleId, WindowStart};

/// A finished batch. Its tensors are views of one lease; the memory is given back when the last
/// holder of the lease drops it.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) about: About,
    pub(crate) lease: Arc<Lease>,
}

/// Everything about a batch but its bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) name: BatchName,
    pub(crate) sequence: u64,
    pub(crate) samples: Vec<SampleId>,
    pub(crate) sample_mask: Vec<bool>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) scalars: Vec<Scalar>,
    pub(crate) bad: Vec<BadSample>,
    pub(crate) tokens: u64,
    pub(crate) images: u64,
    /// Where its window begins and the next one, where samples are packed.
    pub(crate) windows: Option<[WindowStart; 2]>,
    /// Length of the global sequence, where it was not known before this batch's window was opened.
    pub(crate) end: Option<u64>,
    pub(crate) cursor: Option<Cursor>,
}

impl Batch {
    /// What is made in place of a batch that the run ends before: nothing, and where the end is.
    pub(super) fn behind_the_end(name: BatchName, sequence: u64, outline: &Outline) -> Self {
        let about = About {
            name,
            sequence,
            samples: Vec::new(),
            sample_mask: Vec::new(),
            tensors: Vec::new(),
            scalars: Vec::new(),
            bad: Vec::new(),
            tokens: 0,
            images: 0,
            windows: None,
            end: None,
            cursor: None,
        };
        // Some bytes: a buffer of none has no place in memory, and not all that it passes take that.
        let lease = Lease::shared(Box::new([0; ALIGNMENT]));
        let mut batch = Self { about, lease: Arc::new(lease) };
        batch.tell(outline);
        batch
    }

    /// Whether there is no such batch: see [`Self::behind_the_end`].
    pub(crate) fn is_none(&self) -> bool {
        self.about.tensors.is_empty()
    }

    /// Takes down what its window tells of the run.
    pub(super) fn tell(&mut self, outline: &Outline) {
        self.about.windows = outline.windows;
        self.about.end = outline.end;
    }

    /// Its name: lane and number.
    pub fn name(&self) -> BatchName {
        self.about.name
    }

    /// Its place in the global sequence of batches, from 0.
    pub fn sequence(&self) -> u64 {
        self.about.sequence
    }

    /// Its samples, in order; a replaced one by its replacement. What pads the last batches of a pass
    /// is none, and stands behind them.
    pub fn samples(&self) -> &[SampleId] {
        &self.about.samples
    }

    /// For each of its places, padding and neutral images included, whether it is a sample to reckon
    /// with: not where it was neutralised, nor where it is none.
    pub fn sample_mask(&self) -> &[bool] {
        &self.about.sample_mask
    }

    /// Its tensors, in the order of their offsets.
    pub fn tensors(&self) -> &[Tensor] {
        &self.about.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors().iter().find(|tensor| tensor.name == name)
    }

    /// What the model takes beside them, as plain values.
    pub fn scalars(&self) -> &[Scalar] {
        &self.about.scalars
    }

    /// The bytes of a tensor of this batch: row-major, in the machine's byte order.
    pub fn data(&self, tensor: &Tensor) -> &[u8] {
        &self.lease[tensor.range()]
    }

    /// The memory under the tensors.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// The bad samples that were met while making it.
    pub fn bad_samples(&self) -> &[BadSample] {
        &self.about.bad
    }

    /// Tokens, padding and neutral images not counted.
    pub fn tokens(&self) -> u64 {
        self.about.tokens
    }

    /// Images, neutral ones not counted.
    pub fn images(&self) -> u64 {
        self.about.images
    }

    /// Tokens of padding and of neutral images.
    pub(crate) fn padding(&self) -> u64 {
        let places = self.tensor("input_ids").map_or(0, |tensor| tensor.shape.iter().product());
        (places as u64).saturating_sub(self.tokens())
    }

    /// Images that it was given for want of others.
    pub(crate) fn neutral_images(&self) -> u64 {
        let images = self.tensor("image_grid_thw").map_or(0, |tensor| tensor.shape[0]);
        (images as u64).saturating_sub(self.images())
    }

    /// Where to go on after it, if it was delivered by a loader.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.about.cursor.as_ref()
    }

    /// Everything about it but its bytes, as JSON.
    pub fn header(&self) -> String {
        serde_json::to_string(&self.about).expect("numbers and texts become JSON")
    }

    /// A batch of the header of another and a copy of its lease's bytes.
    pub fn from_parts(header: &str, memory: Memory) -> Result<Self> {
        let broken = |what: String| Error::Bug(format!("a batch came over broken: {what}"));
        let about: About =
            serde_json::from_str(header).map_err(|error| broken(error.to_string()))?;
        let lease = Lease::shared(memory);
        for tensor in &about.tensors {
            if tensor.range().end > lease.len() {
                let (name, bytes) = (tensor.name, lease.len());
                return Err(broken(format!("{name} does not end within its {bytes} bytes")));
            }
        }
        Ok(Self { about, lease: Arc::new(lease) })
    }

    /// Counts its memory as the trainer's from now on.
    pub(super) fn hand_over(&mut self) {
        let lease = Arc::get_mut(&mut self.lease);
        lease.expect("nobody shares a batch before it is handed over").hand_over();
    }
}
