//! How long a run is whose samples are packed: known without reading any of them, where the sizes of
//! all are.

use super::rooms::Rooms;
use super::windows::FIRST_WINDOW;
use crate::pack::SampleSize;
use crate::sample::Position;

/// Samples of a run that may be packed to learn its length: a million take seconds.
const MOST_SAMPLES: u64 = 1 << 26;

/// Spares that are looked at for a sample which is known to be over a limit.
const MOST_ATTEMPTS: u32 = 100;

impl Rooms {
    /// Length of the global sequence of packed batches: all windows are packed, one after the other.
    /// `None` if the run is endless, not all rows of the datasets are measured, or the samples are more
    /// than anybody would wait for.
    pub(crate) fn packed_batches(&self) -> Option<u64> {
        self.plan.samples().filter(|samples| *samples <= MOST_SAMPLES)?;
        self.window_of(0)?;
        let mut both = self.sizes_known().into_iter().zip(self.catalog.datasets());
        if !both.all(|(known, dataset)| known == dataset.rows()) {
            return None;
        }
        let mut start = FIRST_WINDOW;
        let mut known: Vec<SampleSize> = Vec::new();
        loop {
            let mut window = self.empty_window(start).ok()?;
            let mut again = known.into_iter();
            let mut offset = 0;
            while !window.is_complete() {
                let measured = || self.measured_size(Position(start.position.0 + offset));
                window.push(again.next().or_else(measured)?);
                offset += 1;
            }
            let mut packed = window.pack();
            known = packed.beyond.drain(..).chain(again).collect();
            let open = self.opened(start, packed);
            if let Some(end) = open.end() {
                return Some(end);
            }
            start = open.next();
        }
    }

    /// Of each dataset, how many sizes of samples are known; none where samples are not packed.
    pub(crate) fn sizes_known(&self) -> Vec<u64> {
        let known = |dataset| self.window_of(0).map_or(0, |_| self.sizes.tokens(dataset).0);
        (0..self.catalog.datasets().len()).map(known).collect()
    }

    /// The size of the sample at a position, or of the spare that stands in for one over a limit.
    fn measured_size(&self, position: Position) -> Option<SampleSize> {
        let budget = self.pack.budget()?;
        for attempt in 0..=MOST_ATTEMPTS {
            let id = match attempt {
                0 => self.plan.sample_at(position),
                _ => self.plan.spare(position, attempt),
            };
            let size = self.sizes.get(id)?;
            if budget.admits(&size) {
                return Some(size);
            }
        }
        None
    }
}
