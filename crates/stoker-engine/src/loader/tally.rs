//! How many samples were bad, and when that is too many.

use crate::engine::Batch;
use crate::error::{BadSample, DatasetError, DatasetErrorKind, Error, Result};
use crate::plan::Cursor;

/// From how many samples on the share of bad ones is judged: sooner, a few bad ones in a row would
/// end a run whose data is sound.
const JUDGED_FROM: u64 = 1000;

/// How many bad samples an error holds, and how many it names in its words.
const LISTED: usize = 100;
const NAMED: usize = 10;

/// Whether bad samples are more than `limit`, a share of all that were had.
pub fn too_many_bad(bad_samples: u64, samples: u64, limit: f64) -> bool {
    bad_samples as f64 > limit * samples.max(JUDGED_FROM) as f64
}

/// What this rank has had.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) samples: u64,
    pub(super) bad_samples: u64,
    /// The first bad ones that this process met.
    listed: Vec<BadSample>,
}

impl Tally {
    /// The tally of the rank that saved a cursor.
    pub(super) fn resumed(cursor: &Cursor) -> Self {
        let (samples, bad_samples) = (cursor.samples(), cursor.bad_samples());
        Self { samples, bad_samples, listed: Vec::new() }
    }

    /// An error if with one more batch bad samples are more than `limit` (a share) of all.
    pub(super) fn judge(&self, batch: &Batch, limit: f64, source: &str) -> Result<()> {
        let samples = self.samples + batch.samples().len() as u64;
        let bad_samples = self.bad_samples + batch.bad_samples().len() as u64;
        if !too_many_bad(bad_samples, samples, limit) {
            return Ok(());
        }
        let listed = self.listed.iter().chain(batch.bad_samples()).take(LISTED).cloned().collect();
        Err(too_many(Self { samples, bad_samples, listed }, limit, source))
    }

    /// Takes in a batch that is handed over.
    pub(super) fn add(&mut self, batch: &Batch) {
        self.samples += batch.samples().len() as u64;
        self.bad_samples += batch.bad_samples().len() as u64;
        let free = LISTED.saturating_sub(self.listed.len());
        self.listed.extend(batch.bad_samples().iter().take(free).cloned());
    }
}

fn too_many(tally: Tally, limit: f64, source: &str) -> Error {
    let Tally { samples, bad_samples, listed } = tally;
    let named = listed.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>();
    let list = named.join("\n  ");
    let reason = format!(
        "{bad_samples} bad samples among {samples}, more than engine.bad-sample-limit = {limit} \
         allows (of {JUDGED_FROM} at least): mend the data (stoker verify lists what is bad), or raise \
         the limit if so many are expected; the first of them:\n  {list}\nin"
    );
    Error::Dataset(DatasetError {
        kind: DatasetErrorKind::BadSamples(listed),
        line: None,
        reason,
        hint: None,
        uri: source.to_owned(),
    })
}
