//! Measuring samples without making batches of them: those of a window, or all there are.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use futures::stream::{self, StreamExt};

use super::neighbours::RowOf;
use super::{Flow, Line};
use crate::dataset::Dataset;
use crate::engine::budget::Claim;
use crate::engine::measure::Reach;
use crate::error::{Error, Result};
use crate::pack::SampleSize;
use crate::sample::Position;

/// Samples that are measured at a time: as many requests as a store is asked at a time by default,
/// as most have an image.
pub(super) const MEASURED_AT_A_TIME: usize = 64;

/// What measuring all has to tell.
enum Measuring {
    Done(u64),
    /// For each dataset, how many rows can't be used.
    End(Result<Vec<u64>>),
}

impl Flow {
    /// Measures all samples that were not measured before; of each dataset, how many can't be used.
    /// `progress` is told samples done and samples in all.
    pub(crate) fn measure(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<u64>> {
        let all = self.line.rooms.catalog.datasets().iter().map(Dataset::rows).sum();
        let (sender, told) = sync_channel(MEASURED_AT_A_TIME);
        let line = Arc::clone(&self.line);
        self.line.rooms.fetcher.spawn(async move {
            let end = line.measure_all(&sender).await;
            // The receiver waits just below.
            drop(sender.send(Measuring::End(end)));
        });
        for news in told {
            match news {
                Measuring::Done(done) => progress(done, all),
                Measuring::End(end) => return end,
            }
        }
        Err(Error::Stopped)
    }
}

impl Line {
    async fn measure_all(self: &Arc<Self>, told: &SyncSender<Measuring>) -> Result<Vec<u64>> {
        let mut bad = vec![0; self.rooms.catalog.datasets().len()];
        // Each row takes its turn as a batch does, so that memory bounds those that are ahead.
        let is_known = |line: &Self, id| line.rooms.sizes.get(id).is_some();
        let rows = self.in_turns(self.rows(), Claim::from, is_known);
        let measured = rows.map(|(turn, row)| async move {
            let id = row.row().id();
            if self.rooms.sizes.get(id).is_some() {
                return Ok((id, true));
            }
            let row = Some(row.row());
            let tried = self.try_sample(turn.into(), id, Reach::Beginning, row).await?;
            if let Ok((measured, _)) = &tried {
                self.rooms.sizes.put(id, &SampleSize::of(measured));
            }
            Ok::<_, Error>((id, tried.is_ok()))
        });
        let mut measured = stream::iter(measured).buffered(MEASURED_AT_A_TIME);
        let mut done = 0;
        self.budget.set_head(done);
        while let Some(next) = measured.next().await {
            let (id, is_good) = next?;
            bad[id.dataset as usize] += u64::from(!is_good);
            done += 1;
            self.budget.set_head(done);
            // Who looks on may miss some of it.
            told.try_send(Measuring::Done(done)).unwrap_or_default();
        }
        drop(measured);
        Ok(bad)
    }

    /// The size of the sample at a position. Bad ones on the way to it are told when its batch is
    /// made.
    pub(super) async fn size(
        self: &Arc<Self>,
        claim: Claim,
        position: Position,
        own: RowOf<'_>,
    ) -> Result<SampleSize> {
        let mut bad = Vec::new();
        for attempt in 0.. {
            let id = self.rooms.candidate(position, attempt, &bad)?;
            if let Some(size) = self.rooms.known_size(id) {
                return Ok(size);
            }
            let row = Some(own).filter(|_| attempt == 0);
            match self.try_sample(claim, id, Reach::Beginning, row).await? {
                Ok((measured, _)) => {
                    let size = SampleSize::of(&measured);
                    self.rooms.sizes.put(id, &size);
                    return Ok(size);
                }
                Err(flaw) => {
                    bad.push(self.rooms.bad(id, flaw, &self.rooms.catalog.origin(id))?);
                }
            }
        }
        unreachable!("candidates end with an error")
    }
}
