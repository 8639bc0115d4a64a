//! WebDataset shards: tar archives whose members are the parts of samples.
//!
//! One pass over the headers and the text leaves the index; images are jumped over.

mod build;
mod group;
mod header;
pub(super) mod names;
mod walk;

pub(super) use build::{Built, Files, NO_END_MARK, build};
pub(super) use walk::Stop;

/// A name as it is shown: what is no UTF-8 is replaced, and only its beginning.
fn shown(name: &[u8]) -> String {
    super::quoted(&String::from_utf8_lossy(name))
}
