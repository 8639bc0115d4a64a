//! stub
use crate::error::{Flaw, Result};
use crate::fetch::Fetcher;
use crate::recipe;
use crate::sample::{Extent, RawSample, Sample};

/// An indexed dataset.
#[derive(Debug)]
pub struct Dataset {}

impl Dataset {
    /// Opens the index, and builds it first where there is none or it is out of date. `progress` is
    /// told bytes read and the source's size.
    pub fn open(
        config: &recipe::Dataset,
        fetcher: &Fetcher,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let _ = (config, fetcher, progress);
        Ok(Self {})
    }
    /// Number of rows.
    pub fn rows(&self) -> u64 {
        unimplemented!()
    }
    /// Index file.
    pub fn index_path(&self) -> &std::path::Path {
        unimplemented!()
    }
    /// Identity of the data: changes when the source does.
    pub fn fingerprint(&self) -> u64 {
        unimplemented!()
    }
    /// Where a row's line lies; a flaw for a row that is known to be unusable (too long).
    pub fn locate(&self, row: u64) -> Result<Extent, Flaw> {
        let _ = row;
        unimplemented!()
    }
    /// `file:line` of a row, for people.
    pub fn origin(&self, row: u64) -> String {
        let _ = row;
        unimplemented!()
    }
    /// What a line means.
    pub fn parse(&self, raw: &RawSample) -> Result<Sample, Flaw> {
        let _ = raw;
        unimplemented!()
    }
}
