//! The windows of packed samples that are open, each opened once however many batches ask for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{self, StreamExt};
use tokio::sync::{OnceCell, watch};

use super::measure::MEASURED_AT_A_TIME;
use super::{Line, Turn};
use crate::engine::budget::Claim;
use crate::engine::windows::{FIRST_WINDOW, OpenWindow, Outline};
use crate::error::{Error, Result};
use crate::pack::{Packed, SampleSize, Window};
use crate::sample::{Position, WindowStart};

/// Windows that are kept open. Batches are asked for from two neighbours at most, but for those of
/// a worker that died.
const KEPT: usize = 4;

/// Starts of windows that are remembered; each is two numbers.
const REMEMBERED: usize = 1024;

type Cell = Arc<OnceCell<Arc<OpenWindow>>>;

/// What is known of windows.
#[derive(Debug)]
pub(super) struct Windows {
    known: Mutex<Known>,
    /// The one behind the last of the run.
    behind: OnceCell<Arc<OpenWindow>>,
    /// The furthest batch that somebody has waited for.
    furthest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Known {
    starts: BTreeMap<u64, Position>,
    open: BTreeMap<u64, Cell>,
}

impl Default for Windows {
    fn default() -> Self {
        let starts = BTreeMap::from([(FIRST_WINDOW.number, FIRST_WINDOW.position)]);
        let known = Mutex::new(Known { starts, open: BTreeMap::new() });
        Self { known, behind: OnceCell::new(), furthest: watch::Sender::new(0) }
    }
}

impl Windows {
    /// Takes note where a window begins.
    pub(super) fn learn(&self, start: WindowStart) {
        let mut known = self.lock();
        known.starts.insert(start.number, start.position);
        if known.starts.len() > REMEMBERED {
            // All but the very first, from which any window can be reached.
            let oldest = known.starts.keys().nth(1).copied();
            oldest.and_then(|oldest| known.starts.remove(&oldest));
        }
    }

    /// Takes note that somebody waits for a batch.
    pub(super) fn asked(&self, sequence: u64) {
        self.furthest.send_if_modified(|furthest| {
            let further = sequence > *furthest;
            *furthest = sequence.max(*furthest);
            further
        });
    }

    /// Waits until a batch, or one behind it, is waited for.
    async fn until_asked(&self, sequence: u64) -> Result<()> {
        let mut furthest = self.furthest.subscribe();
        let asked = furthest.wait_for(|furthest| *furthest >= sequence).await.map(drop);
        asked.map_err(|_| Error::Stopped)
    }

    /// The nearest window up to that one whose start is known.
    fn nearest(&self, number: u64) -> WindowStart {
        let known = self.lock();
        let nearest = known.starts.range(..=number).next_back();
        nearest.map_or(FIRST_WINDOW, |(&number, &position)| WindowStart { number, position })
    }

    fn cell(&self, number: u64) -> Cell {
        let mut known = self.lock();
        let cell = Arc::clone(known.open.entry(number).or_default());
        if known.open.len() > KEPT {
            let oldest = known.open.keys().copied().find(|oldest| *oldest != number);
            oldest.and_then(|oldest| known.open.remove(&oldest));
        }
        cell
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// What is known of a batch.
    pub(super) async fn outline(self: &Arc<Self>, sequence: u64) -> Result<Outline> {
        let Some(number) = self.rooms.window_of(sequence) else {
            return self.rooms.outline(sequence);
        };
        let window = self.window(number).await?;
        if !window.ends_before(sequence) {
            return Ok(window.outline(window.samples(sequence)));
        }
        let Some(empty) = self.rooms.window_behind()? else {
            return Ok(window.outline(Vec::new()));
        };
        // Who begins batches ahead may not know where the end is, and mostly needs none behind it.
        self.windows.until_asked(sequence).await?;
        let behind = self.windows.behind.get_or_try_init(|| self.open_behind(&window, empty));
        Ok(window.outline(behind.await?.samples(sequence)))
    }

    /// A window, or the last one before it, by way of all between the nearest whose start is known
    /// and this one.
    async fn window(self: &Arc<Self>, number: u64) -> Result<Arc<OpenWindow>> {
        let mut start = self.windows.nearest(number);
        let mut before: Option<Arc<OpenWindow>> = None;
        loop {
            let cell = self.windows.cell(start.number);
            let open = || self.open(start, before.as_deref().map_or(&[], OpenWindow::beyond));
            let window = Arc::clone(cell.get_or_try_init(open).await?);
            if window.end().is_some() {
                return Ok(window);
            }
            self.windows.learn(window.next());
            if start.number == number {
                return Ok(window);
            }
            start = window.next();
            before = Some(window);
        }
    }

    async fn open(
        self: &Arc<Self>,
        start: WindowStart,
        known: &[SampleSize],
    ) -> Result<Arc<OpenWindow>> {
        let batch = self.rooms.first_batch(start.number);
        let window = self.rooms.empty_window(start)?;
        let packed = self.filled(batch, start, window, known).await?;
        Ok(Arc::new(self.rooms.opened(start, packed)))
    }

    async fn open_behind(
        self: &Arc<Self>,
        last: &OpenWindow,
        empty: Window,
    ) -> Result<Arc<OpenWindow>> {
        let end = last.end().unwrap_or_default();
        let packed = self.filled(end, last.next(), empty, &[]).await?;
        Ok(Arc::new(last.behind(packed)))
    }

    /// Measures samples, many at a time, until a window is complete. `known` are the sizes of the
    /// first.
    async fn filled(
        self: &Arc<Self>,
        batch: u64,
        start: WindowStart,
        mut window: Window,
        known: &[SampleSize],
    ) -> Result<Packed> {
        for size in known {
            if window.is_complete() {
                break;
            }
            window.push(*size);
        }
        let first = known.len() as u64;
        let place = move |turn| Position(start.position.0 + first + turn);
        let claim = move |turn| Claim::measuring(batch, first + turn);
        let turns = 0..window.most().saturating_sub(first);
        let own = turns.map(|turn| self.rooms.plan.sample_at(place(turn)));
        let is_known = |line: &Self, id| line.rooms.known_size(id).is_some();
        let rows = self.in_turns(own, claim, is_known);
        let ahead = rows
            .map(|(turn, row)| async move { self.size(claim(turn), place(turn), row.row()).await });
        let mut ahead = stream::iter(ahead).buffered(MEASURED_AT_A_TIME);
        while !window.is_complete() {
            let size = ahead.next().await.expect("a window is complete with all that are left")?;
            window.push(size);
        }
        drop(ahead);
        let pack = move |_: &mut _| window.pack();
        self.workers.run(Turn::measure(batch), pack).await
    }
}
