//! How many samples were bad, and when that is too many.

use crate::engine::Batch;
use crate::error::{DatasetError, DatasetErrorKind, Error, Result};
use crate::plan::Cursor;

/// From how many samples on the share of bad ones is judged: sooner, a few bad ones in a row would
/// end a run whose data is sound.
const JUDGED_FROM: u64 = 1000;

/// How many bad samples an error lists.
const LISTED: usize = 10;

/// Whether bad samples are more than `limit`, a share of all that were had.
pub fn too_many_bad(bad_samples: u64, samples: u64, limit: f64) -> bool {
    bad_samples as f64 > limit * samples.max(JUDGED_FROM) as f64
}

/// What this rank has had.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) samples: u64,
    pub(super) bad_samples: u64,
    /// The first bad ones.
    listed: Vec<String>,
}

impl Tally {
    /// The tally of the rank that saved a cursor.
    pub(super) fn resumed(cursor: &Cursor) -> Self {
        let (samples, bad_samples) = (cursor.samples(), cursor.bad_samples());
        Self { samples, bad_samples, listed: Vec::new() }
    }

    /// With one more batch; an error if bad samples are more than `limit` (a share) of all.
    pub(super) fn with(&self, batch: &Batch, limit: f64, source: &str) -> Result<Self> {
        let mut tally = self.clone();
        tally.samples += batch.samples().len() as u64;
        tally.bad_samples += batch.bad_samples().len() as u64;
        tally.listed.extend(batch.bad_samples().iter().map(ToString::to_string));
        tally.listed.truncate(LISTED);
        if too_many_bad(tally.bad_samples, tally.samples, limit) {
            return Err(tally.too_many(limit, source));
        }
        Ok(tally)
    }

    fn too_many(&self, limit: f64, source: &str) -> Error {
        let Self { samples, bad_samples, listed } = self;
        let list = listed.join("\n  ");
        let reason = format!(
            "{bad_samples} bad samples among {samples}, more than engine.bad-sample-limit = {limit} \
             allows (of {JUDGED_FROM} at least): mend the data, or raise the limit if so many are \
             expected; the first of them:\n  {list}\nin"
        );
        Error::Dataset(DatasetError {
            kind: DatasetErrorKind::Data,
            line: None,
            reason,
            hint: None,
            uri: source.to_owned(),
        })
    }
}
