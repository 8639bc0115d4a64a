//! Which samples share a batch where that goes by tokens: known from the sizes of a whole window.
//!
//! Both engines open one window after the other; they differ in how they come by the sizes. What is
//! here is what they share.

use super::rooms::Rooms;
use crate::error::{BadSample, Flaw, Outcome, Result, SampleError};
use crate::metrics::Room;
use crate::pack::{self, Packed, SampleSize, Window};
use crate::sample::{Measured, Position, SampleId, Standing, WindowStart};

/// Where the first window begins.
pub(crate) const FIRST_WINDOW: WindowStart = WindowStart { number: 0, position: Position(0) };

/// A window whose batches are known.
#[derive(Debug)]
pub(super) struct OpenWindow {
    pub(super) start: WindowStart,
    packed: Packed,
}

impl OpenWindow {
    pub(super) fn new(start: WindowStart, packed: Packed) -> Self {
        Self { start, packed }
    }

    /// Where the next one begins.
    pub(super) fn next(&self) -> WindowStart {
        let WindowStart { number, position } = self.start;
        let length = self.packed.sizes.len() as u64;
        WindowStart { number: number + 1, position: Position(position.0 + length) }
    }

    /// Sizes that are known of the next one's first samples.
    pub(super) fn beyond(&self) -> &[SampleSize] {
        &self.packed.beyond
    }

    fn batch(&self, turn: usize) -> Vec<Planned> {
        let planned = |&sample: &usize| Planned {
            position: Position(self.start.position.0 + sample as u64),
            size: Some(self.packed.sizes[sample]),
        };
        self.packed.batches[turn].iter().map(planned).collect()
    }
}

/// A sample of a batch, as far as it is known before it is brought in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) position: Position,
    /// Its size, where the batch was packed by it.
    pub(super) size: Option<SampleSize>,
}

impl Rooms {
    /// The window that a batch belongs to, where samples are packed.
    pub(crate) fn window_of(&self, sequence: u64) -> Option<u64> {
        self.pack.budget()?;
        Some(sequence / self.batches_of_window())
    }

    /// The first batch of a window.
    pub(super) fn first_batch(&self, window: u64) -> u64 {
        window * self.batches_of_window()
    }

    fn batches_of_window(&self) -> u64 {
        pack::batches_of_window(self.recipe.plan.lanes as usize) as u64
    }

    /// A window to be filled, where samples are packed.
    pub(super) fn empty_window(&self) -> Result<Window> {
        let budget = self.pack.budget().ok_or_else(|| bug("a window without a budget"))?;
        Ok(Window::new(budget, self.recipe.plan.lanes as usize))
    }

    /// The samples of a batch; `window` is the one that it belongs to, where samples are packed.
    pub(super) fn planned(
        &self,
        sequence: u64,
        window: Option<&OpenWindow>,
    ) -> Result<Vec<Planned>> {
        if let Some(window) = window {
            let turn = sequence - self.first_batch(window.start.number);
            return Ok(window.batch(turn as usize));
        }
        let positions = self.plan.positions(self.plan.batch(sequence));
        let positions = positions.ok_or_else(|| bug("a batch without a size or a window"))?;
        Ok(positions.map(|position| Planned { position, size: None }).collect())
    }

    /// The size of a sample that was measured before, unless its batches may hold less now.
    pub(super) fn known_size(&self, id: SampleId) -> Option<SampleSize> {
        let budget = self.pack.budget()?;
        self.sizes.get(id).filter(|size| budget.admits(size))
    }

    /// Which of a batch's samples don't go in, since they are not what their window was packed with:
    /// an image was changed, came or went since it was measured, or is damaged behind its beginning
    /// so that a spare stands in. Mostly none.
    pub(super) fn left_out(&self, planned: &[Planned], found: &[&Measured]) -> Vec<usize> {
        let Some(budget) = self.pack.budget() else { return Vec::new() };
        let mut sizes: Vec<_> = found.iter().map(|sample| SampleSize::of(sample)).collect();
        let changed = |&at: &usize| planned[at].size.is_some_and(|size| size != sizes[at]);
        let mut changed: Vec<usize> = (0..found.len()).filter(changed).collect();
        let mut left_out = Vec::new();
        while !budget.holds_all(&sizes) {
            let Some(last) = changed.pop() else { break };
            sizes[last] = SampleSize::default();
            left_out.push(last);
        }
        if left_out.len() == found.len() {
            // A batch is never empty, and one sample always fits.
            left_out.pop();
        }
        left_out
    }

    /// Tells of a sample that was left out; `bad` are the bad ones of its batch.
    pub(super) fn tell_left_out(&self, sample: &Measured, bad: &mut Vec<BadSample>) -> Result<()> {
        match sample.standing {
            Standing::Sample => bad.push(self.changed(sample)?.into_bad(Outcome::LeftOut)),
            // It was told already that it is bad, and why: only not that it loses its place too.
            Standing::Neutral => bad
                .iter_mut()
                .filter(|one| one.id == sample.id)
                .for_each(|one| one.outcome = Outcome::LeftOut),
            Standing::Padding => {}
        }
        Ok(())
    }

    fn changed(&self, sample: &Measured) -> Result<SampleError> {
        let reason = "it is not what its batch was packed with, and has no room in it";
        let flaw = Flaw::new(Room::Pack, "changed", reason).hint(
            "an image was changed since it was measured, or it stands in for a sample with a damaged \
             one; after a change delete the dataset's *.stoker-sizes",
        );
        self.bad(sample.id, flaw, &sample.origin)
    }
}

fn bug(what: &str) -> crate::error::Error {
    crate::error::Error::Bug(what.to_owned())
}
