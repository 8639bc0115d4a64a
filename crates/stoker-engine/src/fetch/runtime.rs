//! The fetch thread: one thread that drives one current-thread runtime.
//!
//! It starts at the first use. It ends when it is told to or when its owner is dropped, at once and
//! with whatever is in flight; its owner waits for that, unless the owner is dropped on the very
//! thread (a task held the last clone). A forked child has no such thread, so it never waits.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};

/// The thread's name, and that of those that wait for it.
const NAME: &str = "stoker-fetch";
const BLOCKING_NAME: &str = "stoker-fetch-io";
/// Threads that wait for local files and for name servers.
const BLOCKING_THREADS: usize = 16;
/// How long these live without work. Once there is one, tokio goes on where no more can be started,
/// and without one it panics; so the first is started at once, and lives as long as a run may pause.
const KEPT: Duration = Duration::from_hours(24);
/// How long the end waits for those threads; then they end by themselves.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Runtime(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Running(Running),
    /// A test's own runtime, with a clock that it holds.
    #[cfg(test)]
    Lent(Handle),
    Closed,
}

#[derive(Debug)]
struct Running {
    handle: Handle,
    /// Dropping it ends the thread.
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
    process: u32,
}

impl Runtime {
    #[cfg(test)]
    pub(super) fn lent(handle: Handle) -> Self {
        Self(Mutex::new(State::Lent(handle)))
    }

    /// The handle to the running thread.
    pub(super) fn handle(&self) -> Result<Handle> {
        let mut state = self.lock();
        if matches!(*state, State::Idle) {
            *state = State::Running(start()?);
        }
        match &*state {
            State::Running(running) if running.is_ours() => Ok(running.handle.clone()),
            #[cfg(test)]
            State::Lent(handle) => Ok(handle.clone()),
            _ => Err(Error::Stopped),
        }
    }

    /// Runs a future; it is cancelled at once if the thread has ended.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let handle = self.handle().unwrap_or_else(|_| ended());
        handle.spawn(future)
    }

    /// Whether this is the fetch thread.
    pub(super) fn is_here(&self) -> bool {
        matches!(&*self.lock(), State::Running(running) if running.id() == thread::current().id())
    }

    pub(super) fn close(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Closed);
        let State::Running(running) = state else { return };
        let elsewhere = running.id() != thread::current().id();
        let ours = running.is_ours();
        let Running { stop, thread, .. } = running;
        drop(stop);
        if ours && elsewhere {
            thread.join().unwrap_or_default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.close();
    }
}

impl Running {
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn id(&self) -> ThreadId {
        self.thread.thread().id()
    }
}

fn build() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name(BLOCKING_NAME)
        .thread_keep_alive(KEPT)
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
}

fn start() -> Result<Running> {
    let named = |name: &'static str| move |error| Error::no_thread(name, &error);
    let runtime = build().map_err(named(NAME))?;
    // Whether a thread can be had is asked in a way that can be answered with no; should somebody
    // else take it in between, the answer is a panic.
    let probe = thread::Builder::new().name(BLOCKING_NAME.to_owned()).spawn(|| {});
    drop(probe.map_err(named(BLOCKING_NAME))?.join());
    let first = catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(|| {})));
    drop(first.map_err(|_| named(BLOCKING_NAME)(io::ErrorKind::WouldBlock.into()))?);
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::Builder::new().name(NAME.to_owned()).spawn(move || {
        runtime.block_on(stopped).unwrap_or_default();
        runtime.shutdown_timeout(PATIENCE);
    });
    let thread = thread.map_err(named(NAME))?;
    Ok(Running { handle, stop, thread, process: std::process::id() })
}

/// The handle of a runtime that has ended: what is spawned there is cancelled.
fn ended() -> Handle {
    let runtime = build().expect("a process that can fetch has descriptors for a runtime");
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    handle
}

/// A task that is stopped when its waiter is dropped.
#[derive(Debug)]
pub(super) struct Aborting<T>(pub(super) JoinHandle<T>);

impl<T> Future for Aborting<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|done| {
            done.map_err(|error| {
                if error.is_cancelled() {
                    Error::Stopped
                } else {
                    Error::Bug(format!("a read panicked ({error})"))
                }
            })
        })
    }
}

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
