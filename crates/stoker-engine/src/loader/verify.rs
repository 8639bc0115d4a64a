//! Checking all data of a recipe before a run: which samples can't be used, and why.

use std::sync::Arc;
use std::time::Duration;

use crate::dataset::Dataset;
use crate::engine::{Findings, Flow, Rooms, Told};
use crate::error::{Error, Result};
use crate::recipe::Recipe;
use crate::sample::SampleId;

pub use crate::engine::Finding;

/// A pass over every row of every dataset of a recipe, in the order of the rows. It finds exactly
/// what a run would replace, neutralise or end with.
pub struct Verify {
    rooms: Arc<Rooms>,
    flow: Flow,
    findings: Findings,
}

/// What [`Verify::next`] has.
#[derive(Debug)]
pub enum Verified {
    /// The next sample that can't be used.
    Found(Box<Finding>),
    /// All rows were looked at.
    End,
    /// Nothing yet; ask again.
    Waiting,
}

/// Why a pass ended before its end: the store, the engine or whoever closed it, and no sample.
#[derive(Clone, Debug)]
pub struct Interruption {
    /// The row that was on its way, and where it stands; all rows before it were looked at.
    pub at: Option<(SampleId, String)>,
    /// What happened.
    pub error: Error,
}

impl Verify {
    /// Opens everything a recipe names, and begins; `progress` is told bytes read and bytes in all
    /// while an index is built.
    pub fn open(recipe: Recipe, progress: &mut dyn FnMut(u64, u64)) -> Result<Self> {
        let rooms = Arc::new(Rooms::open(recipe, progress)?);
        let flow = Flow::start(Arc::clone(&rooms))?;
        let findings = flow.verify();
        Ok(Self { rooms, flow, findings })
    }

    /// What is found next, waiting for it at most as long as `patience`.
    pub fn next(&self, patience: Duration) -> Result<Verified, Box<Interruption>> {
        match self.findings.next(patience) {
            Ok(Told::Found(finding)) => Ok(Verified::Found(finding)),
            Ok(Told::End) => Ok(Verified::End),
            Ok(Told::Waiting) => Ok(Verified::Waiting),
            Ok(Told::Failed(id, error)) => {
                let at = Some((id, self.rooms.catalog.origin(id)));
                Err(Box::new(Interruption { at, error }))
            }
            Err(error) => Err(Box::new(Interruption { at: None, error })),
        }
    }

    /// Rows of all datasets together.
    pub fn rows(&self) -> u64 {
        self.rooms.catalog.datasets().iter().map(Dataset::rows).sum()
    }

    /// Rows that were looked at.
    pub fn looked_at(&self) -> u64 {
        self.findings.looked_at()
    }
}

impl Drop for Verify {
    fn drop(&mut self) {
        self.flow.stop();
        self.rooms.fetcher.close();
    }
}
