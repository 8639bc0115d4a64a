//! The CPU threads: they parse, measure and fill.
//!
//! Tasks are taken by urgency: measuring first (it is short, and the requests of later batches wait
//! for it), then filling, earliest batch first. Each thread has a [`Bench`] of reused scratch
//! memory. The queue needs no bound of its own: what is in it holds permits and blocks, which are
//! bounded in bytes. A task that panics is reported to whoever waits for it, and the thread goes on.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::image::Decoder;
use crate::metrics::Metrics;
use crate::vision::Scratch;

/// Scratch memory of one thread.
#[derive(Debug, Default)]
pub(super) struct Bench {
    pub(super) decoder: Decoder,
    pub(super) scratch: Scratch,
}

/// What a task does, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Reading lines and headers, tokenising.
    Measure,
    /// Writing a part of a batch.
    Fill,
}

type Task = Box<dyn FnOnce(&mut Bench) + Send>;

#[derive(Default)]
struct Queue {
    tasks: BTreeMap<(Work, u64, u64), Task>,
    tickets: u64,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The threads of one loader.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    metrics: Arc<Metrics>,
}

impl Workers {
    pub(super) fn start(count: usize, metrics: Arc<Metrics>) -> Result<Self> {
        let (shared, threads) = (Arc::default(), Mutex::default());
        // Should a thread fail to start, dropping this ends those that did.
        let mut workers = Self { shared, threads, metrics };
        for index in 0..count {
            let shared = Arc::clone(&workers.shared);
            let thread = std::thread::Builder::new()
                .name(format!("stoker-cpu-{index}"))
                .spawn(move || work(&shared))
                .map_err(|error| Error::Bug(format!("could not start a thread: {error}")))?;
            workers.threads.get_mut().unwrap_or_else(PoisonError::into_inner).push(thread);
            workers.metrics.workers.add(1);
        }
        Ok(workers)
    }

    /// Queues a task for a batch. The future ends with what it returned, with [`Error::Stopped`] if
    /// the workers were stopped before its turn, or with [`Error::Bug`] if it panicked.
    pub(super) fn run<T, F>(
        &self,
        work: Work,
        batch: u64,
        task: F,
    ) -> impl Future<Output = Result<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&mut Bench) -> T + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        let task: Task = Box::new(move |bench| {
            let outcome = catch_unwind(AssertUnwindSafe(|| task(bench))).map_err(|panic| {
                *bench = Bench::default();
                Error::Bug(format!("a task panicked: {}", message(panic.as_ref())))
            });
            drop(done.send(outcome));
        });
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.stopped {
            let ticket = queue.tickets;
            queue.tickets += 1;
            queue.tasks.insert((work, batch, ticket), task);
            self.shared.changed.notify_one();
        }
        drop(queue);
        async move { result.await.unwrap_or(Err(Error::Stopped)) }
    }

    /// Forgets what is queued, and ends the threads after what they are doing.
    pub(super) fn stop(&self) {
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.stopped = true;
        let forgotten = std::mem::take(&mut queue.tasks);
        self.shared.changed.notify_all();
        drop(queue);
        drop(forgotten);
        let threads: Vec<_> = {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.drain(..).collect()
        };
        for thread in threads {
            self.metrics.workers.sub(1);
            thread.join().expect("tasks catch their panics");
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn work(shared: &Shared) {
    let mut bench = Bench::default();
    loop {
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let task = loop {
            if let Some((_, task)) = queue.tasks.pop_first() {
                break task;
            }
            if queue.stopped {
                return;
            }
            queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        task(&mut bench);
    }
}

/// What a panic said.
pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
