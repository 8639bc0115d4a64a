//! The maker's half of a loader: any batch of the global sequence, on demand. Data workers run one,
//! for consumers on this machine or another; since a batch is a function of the recipe and its
//! number, any worker can make any batch, and again if need be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Batch, Flow, Opening, Rooms};
use crate::error::{Error, Result};
use crate::metrics::{Evidence, Report};
use crate::recipe::Recipe;
use crate::sample::WindowStart;
use crate::vision::Finish;

/// Makes batches by their place in the global sequence.
pub struct Maker {
    rooms: Arc<Rooms>,
    flow: Flow,
}

impl Maker {
    /// Opens everything a recipe names; builds the index if there is none.
    pub fn open(recipe: Recipe) -> Result<Self> {
        Self::open_in(&Opening::default(), recipe)
    }

    /// The same, in an opening that may be given up.
    pub fn open_in(opening: &Opening, recipe: Recipe) -> Result<Self> {
        let rooms = Arc::new(Rooms::open_in(opening, recipe, &mut |_, _| {})?);
        let flow = Flow::start(Arc::clone(&rooms))?;
        Ok(Self { rooms, flow })
    }

    /// Makes a batch; `None` if it is not finished within `patience`, after which it goes on being
    /// made: ask again. Many threads may ask at once; the lowest number has precedence. Where samples
    /// are packed, a batch that the run ends before has nothing in it but where that is, for
    /// [`super::Front::hand_over`].
    pub fn make(&self, sequence: u64, patience: Duration) -> Result<Option<Box<Batch>>> {
        let batch = self.flow.take(sequence, patience)?;
        if let Some(batch) = &batch {
            self.rooms.count(batch);
        }
        Ok(batch)
    }

    /// Takes note where a window of packed samples begins, as [`super::Front::window`] tells it: those
    /// before it need not be measured then.
    pub fn learn(&self, window: WindowStart) {
        self.flow.learn(window);
    }

    /// Of each dataset, how many sizes of samples are known on this host; see [`super::Front::sizes`].
    pub fn sizes_known(&self) -> Vec<u64> {
        self.rooms.sizes_known()
    }

    /// Takes sizes of a dataset's samples that are known elsewhere.
    pub fn add_sizes(&self, dataset: usize, sizes: &[u8]) -> Result<()> {
        if dataset >= self.rooms.catalog.datasets().len() {
            return Err(Error::Bug(format!("sizes came for dataset {dataset}, which is none")));
        }
        self.rooms.sizes.add_known(dataset, sizes);
        Ok(())
    }

    /// Brings in the samples of the batches that will be asked for, and gives up all others that
    /// nobody waits for.
    pub fn look_ahead(&self, sequences: &BTreeSet<u64>) {
        self.flow.keep_only(sequences);
        for &sequence in sequences {
            self.flow.begin(sequence);
        }
    }

    /// What it has done so far; its consumers' waits are theirs to know.
    pub fn report(&self) -> Report {
        self.rooms.metrics.report()
    }

    /// What an advice is made of, added up since the beginning.
    pub fn evidence(&self) -> Evidence {
        self.rooms.metrics.evidence()
    }

    /// What finishes `u8` pixels on a device.
    pub fn finish(&self) -> Finish {
        self.rooms.vision.finish()
    }

    /// Ends all threads and requests, also while others wait in [`Maker::make`].
    pub fn close(&self) {
        self.flow.stop();
        self.rooms.fetcher.close();
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.close();
    }
}
