//! What a person may want to see of one sample.

use crate::sample::{Conversation, Grid, RgbImage, SampleId};

/// One sample as the model sees it.
#[derive(Debug)]
pub struct Peek {
    /// Which.
    pub id: SampleId,
    /// The file and line that it stands in.
    pub origin: String,
    /// Who said what.
    pub conversation: Conversation,
    /// Its tokens: id, text, and whether it is learned.
    pub tokens: Vec<(u32, String, bool)>,
    /// Its images after resizing, and their grids.
    pub images: Vec<(Grid, RgbImage)>,
}
