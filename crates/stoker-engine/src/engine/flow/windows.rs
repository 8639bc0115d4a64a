//! The windows of packed samples that are open, each opened once however many batches ask for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{self, StreamExt};
use tokio::sync::OnceCell;

use super::measure::MEASURED_AT_A_TIME;
use super::{Line, Turn};
use crate::engine::budget::Claim;
use crate::engine::windows::{FIRST_WINDOW, OpenWindow, Planned};
use crate::error::Result;
use crate::pack::SampleSize;
use crate::sample::{Position, WindowStart};

/// Windows that are kept open. Batches are asked for from two neighbours at most, but for those of
/// a worker that died.
const KEPT: usize = 4;

/// Starts of windows that are remembered; each is two numbers.
const REMEMBERED: usize = 1024;

type Cell = Arc<OnceCell<Arc<OpenWindow>>>;

/// What is known of windows.
#[derive(Debug)]
pub(super) struct Windows(Mutex<Known>);

#[derive(Debug)]
struct Known {
    starts: BTreeMap<u64, Position>,
    open: BTreeMap<u64, Cell>,
}

impl Default for Windows {
    fn default() -> Self {
        let starts = BTreeMap::from([(FIRST_WINDOW.number, FIRST_WINDOW.position)]);
        Self(Mutex::new(Known { starts, open: BTreeMap::new() }))
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The samples of a batch, and the window that it belongs to where samples are packed.
    pub(super) async fn planned(
        self: &Arc<Self>,
        sequence: u64,
    ) -> Result<(Vec<Planned>, Option<Arc<OpenWindow>>)> {
        let window = match self.rooms.window_of(sequence) {
            Some(number) => Some(self.window(number).await?),
            None => None,
        };
        Ok((self.rooms.planned(sequence, window.as_deref())?, window))
    }

    /// A window, by way of all between the nearest whose start is known and this one.
    async fn window(self: &Arc<Self>, number: u64) -> Result<Arc<OpenWindow>> {
        let mut start = self.windows.nearest(number);
        let mut before: Option<Arc<OpenWindow>> = None;
        loop {
            let cell = self.windows.cell(start.number);
            let open = || self.open(start, before.as_deref().map_or(&[], OpenWindow::beyond));
            let window = Arc::clone(cell.get_or_try_init(open).await?);
            self.windows.learn(window.next());
            if start.number == number {
                return Ok(window);
            }
            start = window.next();
            before = Some(window);
        }
    }

    /// Measures samples, many at a time, until a window is full. `known` are the sizes of the first.
    async fn open(
        self: &Arc<Self>,
        start: WindowStart,
        known: &[SampleSize],
    ) -> Result<Arc<OpenWindow>> {
        let mut window = self.rooms.empty_window()?;
        for size in known {
            if window.is_full() {
                break;
            }
            window.push(*size);
        }
        let batch = self.rooms.first_batch(start.number);
        let ahead = (known.len() as u64..).map(|offset| {
            let position = Position(start.position.0 + offset);
            self.size(Claim::measuring(batch, offset), position)
        });
        let mut ahead = stream::iter(ahead).buffered(MEASURED_AT_A_TIME);
        while !window.is_full() {
            let size = ahead.next().await.expect("the stream of samples is endless")?;
            window.push(size);
        }
        drop(ahead);
        let pack = move |_: &mut _| window.pack();
        let packed = self.workers.run(Turn::measure(batch), pack).await?;
        Ok(Arc::new(OpenWindow::new(start, packed)))
    }
}
