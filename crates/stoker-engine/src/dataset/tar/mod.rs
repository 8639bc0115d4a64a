//! WebDataset shards: tar archives whose members are the parts of samples.
//!
//! One pass over the headers and the text leaves an index (`samples`); images are jumped over. A
//! sample is then read by one request for the stretch of the archive that it lies in, and becomes a
//! record with its images as slices of that stretch.

mod build;
mod header;
mod names;
mod read;
mod samples;
mod walk;

pub(super) use build::{Built, Files, NO_END_MARK, build};
pub(super) use read::{locate, origin, record};
#[cfg(test)]
pub(super) use samples::Sample;
pub(super) use walk::Stop;

/// A name as it is shown: what is no UTF-8 is replaced, and only its beginning.
fn shown(name: &[u8]) -> String {
    super::quoted(&String::from_utf8_lossy(name))
}
