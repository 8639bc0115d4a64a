//! A finished batch: named tensors over one lease.

use std::sync::Arc;

use super::block::Lease;
use crate::error::SampleError;
use crate::pack::Tensor;
use crate::plan::Cursor;
use crate::sample::{BatchName, SampleId};

/// A finished batch. Its tensors are views of one lease; the memory is given back when the last
/// holder of the lease drops it.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) name: BatchName,
    pub(crate) samples: Vec<SampleId>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) bad: Vec<SampleError>,
    pub(crate) tokens: u64,
    pub(crate) images: u64,
    pub(crate) cursor: Option<Cursor>,
}

impl Batch {
    /// Its name: lane and number.
    pub fn name(&self) -> BatchName {
        self.name
    }

    /// Its samples, in order; a replaced one by its replacement.
    pub fn samples(&self) -> &[SampleId] {
        &self.samples
    }

    /// Its tensors, in the order of their offsets.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
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
    pub fn bad_samples(&self) -> &[SampleError] {
        &self.bad
    }

    /// Tokens, padding not counted.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Images.
    pub fn images(&self) -> u64 {
        self.images
    }

    /// Where to go on after it, if it was delivered by a loader.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    /// Counts its memory as the trainer's from now on.
    pub(super) fn hand_over(&mut self) {
        let lease = Arc::get_mut(&mut self.lease);
        lease.expect("nobody shares a batch before it is handed over").hand_over();
    }
}
