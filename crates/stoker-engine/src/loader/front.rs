//! The consumer's half of a loader: which batch comes next, and what has been had. It makes none
//! itself; a [`super::Loader`] makes them in this process, other front doors have them made
//! elsewhere. State, length, report and the judgement on bad samples are the same in all of them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::ledger::Ledger;
use super::live::Live;
use super::tally::Tally;
use crate::engine::{Batch, FIRST_WINDOW, Opening, Rooms, Sizes};
use crate::error::{Error, Result};
use crate::metrics::{Metrics, Report, Wait};
use crate::plan::Cursor;
use crate::recipe::Recipe;
use crate::sample::{Rank, WindowStart};
use crate::vision::Finish;

/// For how many batches back the state is known: more than any trainer looks ahead, in 24 KiB.
pub const REMEMBERED: usize = 1024;

/// Copied rows of a dataset that one host sends to another, in bytes. Of more, the store is the
/// better source: it serves all hosts at once.
const SENT: u64 = 1 << 30;

/// What one rank is to have, and has had.
pub struct Front {
    rooms: Arc<Rooms>,
    rank: Rank,
    /// Length of the global sequence, once it is known where samples are packed.
    end: OnceLock<u64>,
    seat: Mutex<Seat>,
    live: Live,
}

/// What the consumer has had.
#[derive(Debug)]
struct Seat {
    /// Where in the global sequence this iteration began.
    start: u64,
    /// Batches taken since.
    steps: u64,
    /// The end of the run was seen.
    ended: bool,
    /// Where the window of the batch after the last step begins, where samples are packed.
    window: WindowStart,
    tally: Tally,
    /// Where the consumer was before each of the last batches that it took, the latest one last.
    before: VecDeque<Mark>,
    /// Open from the first batch of this iteration on, if the recipe asks for one.
    ledger: Option<Ledger>,
    last_hand_over: Option<Instant>,
    failed: Option<Error>,
}

impl Seat {
    /// At the beginning of an iteration.
    fn new(start: u64, window: WindowStart, tally: Tally) -> Self {
        Self {
            start,
            steps: 0,
            window,
            ended: false,
            tally,
            before: VecDeque::new(),
            ledger: None,
            last_hand_over: None,
            failed: None,
        }
    }

    /// At the beginning of all.
    fn first() -> Self {
        Self::new(0, FIRST_WINDOW, Tally::default())
    }
}

/// Where a consumer was: what a cursor says beside the plan.
#[derive(Clone, Copy, Debug)]
struct Mark {
    batches: u64,
    samples: u64,
    bad_samples: u64,
    window: WindowStart,
}

impl Front {
    /// Opens everything a recipe names; builds the index if there is none.
    pub fn open(recipe: Recipe, rank: Rank) -> Result<Self> {
        Self::open_with_progress(recipe, rank, &mut |_, _| {})
    }

    /// The same; `progress` is told bytes read and bytes in all while an index is built.
    pub fn open_with_progress(
        recipe: Recipe,
        rank: Rank,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        Self::of(Rooms::open(recipe, progress)?, rank)
    }

    /// The same, in an opening that may be given up.
    pub fn open_in(opening: &Opening, recipe: Recipe, rank: Rank) -> Result<Self> {
        Self::of(Rooms::open_in(opening, recipe, &mut |_, _| {})?, rank)
    }

    fn of(rooms: Rooms, rank: Rank) -> Result<Self> {
        let rooms = Arc::new(rooms);
        rooms.plan.check_rank(rank)?;
        let live = Live::start(&rooms, rank)?;
        Ok(Self { rooms, rank, end: OnceLock::new(), seat: Mutex::new(Seat::first()), live })
    }

    /// The place in the global sequence of the batch that comes `steps` after the next one; `None`
    /// after the end. Where samples are packed, the end may not be known yet: then one that will be
    /// found to be behind it ([`Self::hand_over`]) has a place too.
    pub fn sequence_at(&self, steps: u64) -> Option<u64> {
        let seat = self.seat();
        let step = seat.steps + steps;
        let last = self.steps(&seat);
        let (of, index) = (u64::from(self.rank.of), u64::from(self.rank.index));
        last.is_none_or(|last| step < last).then(|| seat.start + step * of + index)
    }

    /// Steps of this iteration, as far as the end is known.
    fn steps(&self, seat: &Seat) -> Option<u64> {
        match self.batches() {
            _ if self.rooms.samples_left(seat.window) == Some(0) => Some(0),
            Some(batches) => Some(self.rooms.plan.rounds(batches, seat.start, self.rank)),
            None => None,
        }
    }

    /// Batches of this rank that are still to come; `None` where [`Self::len`] is. Of a run that was
    /// begun on another number of ranks they are not what is missing to that length.
    pub fn left(&self) -> Option<u64> {
        self.len()?;
        let seat = self.seat();
        let steps = self.steps(&seat)?;
        Some(if seat.ended { 0 } else { steps.saturating_sub(seat.steps) })
    }

    /// Takes note that the next batch goes to the trainer, which was blocked for it so long, and
    /// gives it its cursor. A batch that shows that the data are bad is refused, and was not
    /// delivered: the state remains that of the batch before. `None` for a batch that shows that the
    /// run has ended before it: it goes to nobody, and [`Self::sequence_at`] has no more.
    pub fn hand_over(
        &self,
        mut batch: Box<Batch>,
        blocked: Duration,
    ) -> Result<Option<Box<Batch>>> {
        self.check()?;
        if let Some(end) = batch.about.end {
            self.end.get_or_init(|| end);
        }
        let next = self.sequence_at(0);
        if next.is_none() && batch.about.end.is_some() {
            return Ok(None);
        }
        if next != Some(batch.sequence()) {
            let found = batch.sequence();
            return Err(Error::Bug(format!("batch {found} came where {next:?} comes next")));
        }
        let mut seat = self.seat();
        let before = self.mark(&seat);
        if let Err(error) = self.admit(&mut seat, &batch) {
            seat.failed = Some(error.clone());
            return Err(error);
        }
        seat.steps += 1;
        if seat.before.len() == REMEMBERED {
            seat.before.pop_front();
        }
        seat.before.push_back(before);
        if let Some([own, next]) = batch.about.windows {
            let delivered = self.delivered(&seat);
            // After the last batch a window is named that nothing is left for.
            let is_over = batch.about.end.is_some_and(|end| delivered >= end);
            let stays = self.rooms.window_of(delivered) == Some(own.number) && !is_over;
            seat.window = if stays { own } else { next };
        }
        self.count(&batch);
        batch.about.cursor = Some(self.cursor(self.mark(&seat)));
        let now = Instant::now();
        let since = seat.last_hand_over.replace(now);
        let wall = since.map_or(blocked, |since| now - since);
        self.rooms.metrics.waited(Wait { blocked, wall });
        Ok(Some(batch))
    }

    /// Takes note that the batch that was handed over last has come to the trainer only now: until then
    /// the trainer waited.
    pub fn arrived(&self) {
        let handed_over = self.seat().last_hand_over;
        if let Some(at) = handed_over {
            self.rooms.metrics.late(at.elapsed());
        }
    }

    /// Judges the bad samples of a batch, and writes them down.
    fn admit(&self, seat: &mut Seat, batch: &Batch) -> Result<()> {
        let recipe = &self.rooms.recipe;
        if let (Some(folder), None) = (&recipe.engine.ledger, &seat.ledger) {
            seat.ledger = Some(Ledger::open(folder.as_ref(), self.rank, seat.start)?);
        }
        seat.tally.judge(batch, recipe.engine.bad_sample_limit, &recipe.sources())?;
        if let Some(ledger) = &mut seat.ledger {
            ledger.write(batch, &recipe.datasets)?;
        }
        seat.tally.add(batch);
        Ok(())
    }

    fn count(&self, batch: &Batch) {
        let metrics = &self.rooms.metrics;
        self.rooms.count(batch);
        batch.bad_samples().iter().for_each(|bad| metrics.bad_sample(bad));
    }

    /// After an error it stays failed, and says the same again; closing is no failure.
    pub(super) fn fail(&self, error: Error) -> Error {
        if error != Error::Stopped {
            self.seat().failed = Some(error.clone());
        }
        error
    }

    /// The error that it failed with.
    pub(super) fn check(&self) -> Result<()> {
        self.seat().failed.clone().map_or(Ok(()), Err)
    }

    /// Takes note that the consumer sees the end of the run; see [`Cursor::ended`].
    pub fn end(&self) {
        self.seat().ended = true;
    }

    /// Whether the end of the run was seen, so that it is to begin anew.
    pub fn ended(&self) -> bool {
        self.seat().ended
    }

    /// Where to go on after the last batch that was handed over, or after the end.
    pub fn state(&self) -> Cursor {
        let seat = self.seat();
        let cursor = self.cursor(self.mark(&seat));
        if seat.ended { cursor.ending() } else { cursor }
    }

    /// The state as it was before the last `batches` batches were handed over: where to go on for a
    /// trainer that holds so many which it has not trained on, and has not seen the end even if it
    /// holds none. `None` if that was before a cursor was loaded, or more than [`REMEMBERED`] batches
    /// ago.
    pub fn state_ago(&self, batches: usize) -> Option<Cursor> {
        let seat = self.seat();
        let mark = match batches {
            0 => self.mark(&seat),
            _ => *seat.before.get(seat.before.len().checked_sub(batches)?)?,
        };
        Some(self.cursor(mark))
    }

    /// Where the window of the next step begins, where samples are packed: whoever makes its
    /// batches can do without it, but then measures all windows from the first one on.
    pub fn window(&self) -> Option<WindowStart> {
        let window = self.seat().window;
        self.rooms.window_of(0).map(|_| window)
    }

    /// Batches that all ranks together have had after as many steps as this one.
    fn delivered(&self, seat: &Seat) -> u64 {
        seat.start + seat.steps * u64::from(self.rank.of)
    }

    fn mark(&self, seat: &Seat) -> Mark {
        let Tally { samples, bad_samples, .. } = seat.tally;
        Mark { batches: self.delivered(seat), samples, bad_samples, window: seat.window }
    }

    fn cursor(&self, mark: Mark) -> Cursor {
        let Mark { batches, samples, bad_samples, window } = mark;
        let cursor = self.rooms.plan.cursor(batches, samples, bad_samples);
        match self.rooms.window_of(batches) {
            Some(_) => cursor.in_window(window.position),
            None => cursor,
        }
    }

    /// Goes on where a cursor says; it may come from any number of ranks.
    pub fn load_state(&self, cursor: &Cursor) -> Result<()> {
        self.rooms.plan.check_cursor(cursor)?;
        let start = cursor.batches();
        let number = self.rooms.window_of(start).unwrap_or_default();
        let position = cursor.window_start().unwrap_or(FIRST_WINDOW.position);
        let window = WindowStart { number, position };
        // A run that was made longer meanwhile goes on; one whose samples are packed can't be.
        let goes_on = match self.rooms.plan.batches_per_rank(start, self.rank) {
            Some(left) => left > 0,
            None => self.is_endless(),
        };
        let ended = cursor.ended() && !goes_on;
        *self.seat() = Seat { ended, ..Seat::new(start, window, Tally::resumed(cursor)) };
        Ok(())
    }

    /// Goes back to the beginning.
    pub fn rewind(&self) {
        let mut seat = self.seat();
        let before = std::mem::take(&mut seat.before);
        *seat = Seat { before, ..Seat::first() };
    }

    /// Batches of this rank in the whole run; `None` if it is endless, or samples are packed and
    /// those of the run are not all measured ([`Self::is_endless`] says which).
    pub fn len(&self) -> Option<u64> {
        let measured = || self.rooms.packed_batches().map(|end| *self.end.get_or_init(|| end));
        let batches = self.batches().or_else(measured)?;
        Some(self.rooms.plan.rounds(batches, 0, self.rank))
    }

    /// Length of the global sequence, as far as it is known.
    fn batches(&self) -> Option<u64> {
        self.rooms.plan.batches().or_else(|| self.end.get().copied())
    }

    /// Whether the run has no end.
    pub fn is_endless(&self) -> bool {
        self.rooms.plan.samples().is_none()
    }

    /// Whether the run has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// What has been handed over so far, and what this process has done for it.
    pub fn report(&self) -> Report {
        self.rooms.metrics.report()
    }

    /// Where it is read over HTTP, if `engine.metrics` says so.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.live.address()
    }

    /// What finishes `u8` pixels on a device.
    pub fn finish(&self) -> Finish {
        self.rooms.vision.finish()
    }

    /// The files that hold the index of each dataset, in the order of the recipe, for hosts that
    /// would else have to build it; none for a dataset that each host had better index itself.
    pub fn index_files(&self) -> Vec<Vec<PathBuf>> {
        let datasets = self.rooms.catalog.datasets().iter();
        datasets.map(|dataset| dataset.index_files(SENT)).collect()
    }

    /// Of each dataset, how many sizes of samples are known here, for hosts that may know fewer; none
    /// where they are too many to be sent, or samples are not packed.
    pub fn sizes_known(&self) -> Vec<u64> {
        let is_sent = |known: u64| known.saturating_mul(Sizes::SENT) <= SENT;
        let known = self.rooms.sizes_known().into_iter();
        known.map(|known| if is_sent(known) { known } else { 0 }).collect()
    }

    /// The sizes that are known of a dataset's samples from a row on, as [`super::Maker::add_sizes`]
    /// takes them, of at most so many bytes; and from which row on there are more.
    pub fn sizes(&self, dataset: usize, row: u64, most: usize) -> (Vec<u8>, Option<u64>) {
        self.rooms.sizes.known_from(dataset, row, most)
    }

    /// Ends the requests.
    pub fn close(&self) {
        self.rooms.fetcher.close();
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.rooms.metrics
    }

    pub(super) fn rooms(&self) -> Arc<Rooms> {
        Arc::clone(&self.rooms)
    }

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
