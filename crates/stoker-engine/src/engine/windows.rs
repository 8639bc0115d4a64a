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
    /// Its first batch in the global sequence.
    first: u64,
    packed: Packed,
}

impl OpenWindow {
    /// Where the next one begins.
    pub(super) fn next(&self) -> WindowStart {
        let WindowStart { number, position } = self.start;
        let length = self.packed.sizes.len() as u64;
        WindowStart { number: number + 1, position: Position(position.0 + length) }
    }

    /// Length of the global sequence, where the run ends with this window.
    pub(super) fn end(&self) -> Option<u64> {
        self.packed.is_last.then(|| self.first + self.packed.batches.len() as u64)
    }

    /// The window behind this one, which is the last: that was filled.
    pub(super) fn behind(&self, packed: Packed) -> Self {
        Self { start: self.next(), first: self.end().unwrap_or(u64::MAX), packed }
    }

    /// Whether a batch, of this window or a later one, is behind the end of the run.
    pub(super) fn ends_before(&self, sequence: u64) -> bool {
        self.end().is_some_and(|end| sequence >= end)
    }

    /// Sizes that are known of the next one's first samples.
    pub(super) fn beyond(&self) -> &[SampleSize] {
        &self.packed.beyond
    }

    /// What is known of a batch of this window, or of one behind the last.
    pub(super) fn outline(&self, samples: Vec<Planned>) -> Outline {
        Outline { samples, windows: Some([self.start, self.next()]), end: self.end() }
    }

    /// The samples of a batch; none of one that it has not.
    pub(super) fn samples(&self, sequence: u64) -> Vec<Planned> {
        let turn = (sequence - self.first) as usize;
        let planned = |&sample: &usize| Planned {
            position: Position(self.start.position.0 + sample as u64),
            size: Some(self.packed.sizes[sample]),
        };
        self.packed.batches.get(turn).into_iter().flatten().map(planned).collect()
    }
}

/// What is known of a batch before its samples are brought in.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    /// None where the run ends before it: there is no such batch.
    pub(super) samples: Vec<Planned>,
    /// Where its window begins and the next one, where samples are packed.
    pub(super) windows: Option<[WindowStart; 2]>,
    /// Length of the global sequence, where that is known by its window.
    pub(super) end: Option<u64>,
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
        pack::batches_of_window(self.lanes()) as u64
    }

    /// Samples of the run from the first one of a window on; `None` if it is endless.
    pub(crate) fn samples_left(&self, start: WindowStart) -> Option<u64> {
        self.plan.samples().map(|samples| samples.saturating_sub(start.position.0))
    }

    /// A window to be filled, where samples are packed.
    pub(super) fn empty_window(&self, start: WindowStart) -> Result<Window> {
        Ok(Window::new(self.token_budget()?, self.lanes(), self.samples_left(start)))
    }

    /// A window that was filled.
    pub(super) fn opened(&self, start: WindowStart, packed: Packed) -> OpenWindow {
        OpenWindow { start, first: self.first_batch(start.number), packed }
    }

    /// The window behind the last one to be filled, if rounds are filled up.
    pub(super) fn window_behind(&self) -> Result<Option<Window>> {
        let budget = self.token_budget()?;
        let window = || Window::behind_the_last(budget, self.lanes());
        Ok(self.plan.fills_rounds().then(window))
    }

    fn token_budget(&self) -> Result<pack::Budget> {
        self.pack.budget().ok_or_else(|| bug("a window without a budget"))
    }

    fn lanes(&self) -> usize {
        self.recipe.plan.lanes as usize
    }

    /// What is known of a batch where batches have a size.
    pub(super) fn outline(&self, sequence: u64) -> Result<Outline> {
        let positions = self.plan.positions(self.plan.batch(sequence));
        let positions = positions.ok_or_else(|| bug("a batch without a size or a window"))?;
        let samples = positions.map(|position| Planned { position, size: None }).collect();
        Ok(Outline { samples, windows: None, end: None })
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
