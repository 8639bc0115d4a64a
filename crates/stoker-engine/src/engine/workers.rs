//! The CPU threads: they parse, measure and fill.
//!
//! Tasks are taken by urgency: measuring first (it is short, and the requests of later batches wait
//! for it), then filling, earliest batch first, and of a batch the largest image first: begun last, it
//! would keep one thread busy while the others have nothing left to do. Measuring that is not short goes
//! before the filling of its own batch, and after that of earlier ones. Each thread has a [`Bench`]
//! of reused scratch memory. The queue needs no bound of its own: what is in it holds permits and
//! blocks, which are bounded in bytes. A task that panics is reported to whoever waits for it, and the
//! thread goes on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::image::Decoder;
use crate::metrics::{CoreTime, Metrics, Stopwatch, nanos};
use crate::thread::{self, Priority};
use crate::vision::Scratch;

/// Scratch memory of one thread.
#[derive(Debug, Default)]
pub(super) struct Bench {
    pub(super) decoder: Decoder,
    pub(super) scratch: Scratch,
}

/// When a task is taken; the least is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    begins: Begins,
    batch: u64,
    work: Work,
    size: Reverse<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Begins {
    AtOnce,
    InOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Measure,
    Fill,
}

impl Turn {
    /// Reading lines and headers, tokenising.
    pub(super) fn measure(batch: u64) -> Self {
        Self { begins: Begins::AtOnce, batch, work: Work::Measure, size: Reverse(0) }
    }

    /// Measuring that takes as long as filling.
    pub(super) fn measure_slowly(batch: u64) -> Self {
        Self { begins: Begins::InOrder, ..Self::measure(batch) }
    }

    /// Writing a part of a batch.
    pub(super) fn fill(batch: u64) -> Self {
        Self { begins: Begins::InOrder, batch, work: Work::Fill, size: Reverse(0) }
    }

    /// What traces call it.
    fn name(self) -> &'static str {
        match self.work {
            Work::Measure => "measuring",
            Work::Fill => "filling",
        }
    }

    /// The same for a task of some size, in any unit; those of a batch are compared.
    pub(super) fn of_size(self, size: u64) -> Self {
        Self { size: Reverse(size), ..self }
    }
}

/// What a thread does, and calls before anybody knows that it is done.
type Job = Box<dyn FnOnce(&mut Bench, &mut dyn FnMut()) + Send>;

/// A job that waits since then.
struct Task {
    job: Job,
    since: Stopwatch,
}

#[derive(Default)]
struct Queue {
    tasks: BTreeMap<(Turn, u64), Task>,
    tickets: u64,
    /// Threads that wait for a task.
    idle: usize,
    /// How many of them there is none for: one that was woken for a task may not have a core yet.
    spare: usize,
    stopped: bool,
}

impl Queue {
    /// Takes note of threads that went idle or have a task.
    fn settle(&mut self, metrics: &Metrics) {
        let spare = self.idle.saturating_sub(self.tasks.len());
        let before = std::mem::replace(&mut self.spare, spare);
        if spare != before {
            // Those of the other loaders of these metrics, should there be any, stay.
            metrics.occupancy.change(|standing| {
                standing.idle = standing.idle.saturating_add_signed(spare as i32 - before as i32);
            });
        }
    }
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
            let (shared, metrics) = (Arc::clone(&workers.shared), Arc::clone(&workers.metrics));
            let name = format!("stoker-cpu-{index}");
            let thread = thread::start(&name, Priority::Nicer, move || work(&shared, &metrics))?;
            workers.threads.get_mut().unwrap_or_else(PoisonError::into_inner).push(thread);
            workers.metrics.workers.add(1);
        }
        Ok(workers)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// For how many of them there is nothing to do.
    pub(super) fn spare(&self) -> usize {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).spare
    }

    /// Queues a task. The future ends with what it returned, with [`Error::Stopped`] if the workers
    /// were stopped before its turn, or with [`Error::Bug`] if it panicked.
    pub(super) fn run<T, F>(
        &self,
        turn: Turn,
        task: F,
    ) -> impl Future<Output = Result<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&mut Bench) -> T + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move |bench, count| {
            let outcome = catch_unwind(AssertUnwindSafe(|| task(bench))).map_err(|panic| {
                *bench = Bench::default();
                Error::Bug(format!("a task panicked: {}", message(panic.as_ref())))
            });
            count();
            drop(done.send(outcome));
        });
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.stopped {
            let ticket = queue.tickets;
            queue.tickets += 1;
            queue.tasks.insert((turn, ticket), Task { job, since: Stopwatch::start() });
            queue.settle(&self.metrics);
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
        queue.settle(&self.metrics);
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

fn work(shared: &Shared, metrics: &Metrics) {
    let _one_more = metrics.occupancy.hold(|standing| &mut standing.workers);
    let mut bench = Bench::default();
    let mut cores = CoreTime::of_this_thread();
    loop {
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (turn, task) = loop {
            if let Some(((turn, _), task)) = queue.tasks.pop_first() {
                queue.settle(metrics);
                break (turn, task);
            }
            if queue.stopped {
                queue.settle(metrics);
                return;
            }
            queue.idle += 1;
            queue.settle(metrics);
            queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        };
        drop(queue);
        metrics.queued_task_nanos.add(nanos(task.since.elapsed()));
        let span = metrics.trace.span(turn.name(), || vec![("batch", turn.batch.into())]);
        (task.job)(&mut bench, &mut || cores.count(&metrics.cores));
        drop(span);
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::join_all;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn measuring_goes_first_then_the_earliest_batch_and_of_it_the_largest_image() {
        let workers = Workers::start(1, Arc::default()).unwrap();
        let (go, wait) = mpsc::sync_channel::<()>(1);
        let busy = workers.run(Turn::measure(0), move |_| wait.recv().unwrap());
        let order = Arc::new(Mutex::new(Vec::new()));
        let turns = [
            ("batch 2, large", Turn::fill(2).of_size(9)),
            ("batch 1, small", Turn::fill(1).of_size(1)),
            ("batch 1, large", Turn::fill(1).of_size(5)),
            ("batch 1, as large", Turn::fill(1).of_size(5)),
            ("batch 1, text", Turn::fill(1)),
            ("batch 1, measured slowly", Turn::measure_slowly(1)),
            ("batch 2, measured slowly", Turn::measure_slowly(2)),
            ("batch 3, measured", Turn::measure(3)),
        ];
        let tasks = turns.map(|(name, turn)| {
            let order = Arc::clone(&order);
            workers.run(turn, move |_| order.lock().unwrap().push(name))
        });
        go.send(()).unwrap();
        block_on(async {
            busy.await.unwrap();
            join_all(tasks).await.into_iter().for_each(|done| done.unwrap());
        });
        let expected = [
            "batch 3, measured",
            "batch 1, measured slowly",
            "batch 1, large",
            "batch 1, as large",
            "batch 1, small",
            "batch 1, text",
            "batch 2, measured slowly",
            "batch 2, large",
        ];
        assert_eq!(*order.lock().unwrap(), expected);
    }

    #[test]
    fn what_a_thread_is_at_counts_while_it_goes_on() {
        let metrics = Arc::<Metrics>::default();
        let workers = Workers::start(2, Arc::clone(&metrics)).unwrap();
        let (go, wait) = mpsc::sync_channel::<()>(1);
        let (tell, begun) = mpsc::sync_channel::<()>(1);
        let busy = workers.run(Turn::measure(0), move |_| {
            tell.send(()).unwrap();
            wait.recv().unwrap();
        });
        begun.recv().unwrap();
        while workers.spare() != 1 {
            std::thread::yield_now();
        }
        let (since, before) = (Instant::now(), metrics.report().worker_seconds);
        std::thread::sleep(Duration::from_millis(20));
        let (after, most) = (metrics.report().worker_seconds, since.elapsed().as_secs_f64());
        go.send(()).unwrap();
        block_on(busy).unwrap();
        assert!((0.02..=most).contains(&(after - before)), "{} s of {most}", after - before);
        workers.stop();
        let worked = metrics.report().worker_seconds;
        std::thread::sleep(Duration::from_millis(2));
        assert!(metrics.report().worker_seconds <= worked, "those that ended work no more");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_give_way_to_those_of_the_trainer() {
        use rustix::process::getpriority_process;
        let workers = Workers::start(1, Arc::default()).unwrap();
        let theirs = workers.run(Turn::measure(0), |_| getpriority_process(None).unwrap());
        let ours = getpriority_process(None).unwrap();
        assert!(block_on(theirs).unwrap() > ours || ours == 19);
    }
}
