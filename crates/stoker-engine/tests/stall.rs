//! A store that takes requests and never answers: closing and dropping a loader end its threads
//! nevertheless, and who asks for its state is answered. A binary of its own, since it looks at all
//! threads of the process.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod common;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use stoker_engine::error::Error;
use stoker_engine::loader::{Loader, Next};
use stoker_engine::sample::Rank;

const SECOND: Duration = Duration::from_secs(1);

/// A loader whose lines are on disk and whose images never come.
struct Stall {
    loader: Loader,
    _store: TcpListener,
    _folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Stall {
    /// A store that takes requests and is silent.
    fn begin() -> Self {
        Self::begin_with(|store| store)
    }

    /// A store that begins to answer, and stops in the middle of each body.
    fn begin_in_a_body() -> Self {
        Self::begin_with(|store| {
            let (answering, mut stalled) = (store.try_clone().unwrap(), Vec::new());
            let answer = move || {
                for connection in answering.incoming() {
                    let mut connection = connection.unwrap();
                    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nETag: \"1\"\r\n\r\n";
                    let answer = [head.as_bytes(), &[0xFF; 1000]].concat();
                    // Who gave up on the answer does not read it.
                    drop(connection.write_all(&answer));
                    stalled.push(connection);
                }
            };
            thread::Builder::new().name("answering".into()).spawn(answer).unwrap();
            store
        })
    }

    /// One at a time, so that all threads that are seen are its own.
    fn begin_with(serve: impl FnOnce(TcpListener) -> TcpListener) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let source = common::dataset(folder.path());
        let store = serve(TcpListener::bind("127.0.0.1:0").unwrap());
        let recipe = common::recipe(
            &source,
            json!({
                "dataset": {"media-root": "s3://bucket/"},
                "fetch": {
                    "endpoint": format!("http://{}", store.local_addr().unwrap()),
                    "anonymous": true,
                },
                "engine": {"workers": 2},
            }),
        );
        let loader = Loader::open(recipe, Rank { index: 0, of: 1 }).unwrap();
        let first = loader.next(Duration::from_millis(200)).unwrap();
        assert!(matches!(first, Next::Waiting), "the store does not answer");
        // By the time that a store stalls, the tokenizer is long built.
        while threads().iter().any(|name| name.starts_with("stoker-token")) {
            thread::sleep(Duration::from_millis(5));
        }
        Self { loader, _store: store, _folder: folder, _alone: alone }
    }
}

/// The engine's threads in this process, by name.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.filter_map(|task| name(task.unwrap()));
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("stoker-")).collect()
}

/// Waits until no thread is left, a second from `since` at most.
fn no_thread_is_left(since: Instant) {
    while !threads().is_empty() {
        assert!(since.elapsed() < SECOND, "still there after a second: {:?}", threads());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn closing_in_a_stall_ends_all_threads_within_a_second() {
    let stall = Stall::begin();
    assert!(threads().len() >= 3, "{:?}", threads());
    let since = Instant::now();
    stall.loader.close();
    no_thread_is_left(since);
    let report = stall.loader.report();
    let memory = (report.memory.compressed_bytes, report.memory.arena_bytes);
    assert_eq!((report.workers, memory), (0, (0, 0)));
}

#[test]
fn closing_in_the_middle_of_bodies_ends_all_threads_and_gives_back_all_memory() {
    let stall = Stall::begin_in_a_body();
    assert!(stall.loader.report().memory.compressed_bytes > 0, "it waits for bodies");
    let since = Instant::now();
    stall.loader.close();
    no_thread_is_left(since);
    let report = stall.loader.report();
    let memory = (report.memory.compressed_bytes, report.memory.leased_bytes);
    assert_eq!((report.workers, memory, report.memory.arena_bytes), (0, (0, 0), 0));
}

#[test]
fn dropping_in_a_stall_ends_all_threads_within_a_second() {
    let Stall { loader, _alone, _store, _folder } = Stall::begin();
    let since = Instant::now();
    drop(loader);
    no_thread_is_left(since);
}

#[test]
fn one_who_waits_is_told_when_another_thread_closes() {
    let stall = Stall::begin();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| stall.loader.next(Duration::from_mins(1)).map(|_| ()));
        thread::sleep(Duration::from_millis(100));
        let since = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| stall.loader.close());
            scope.spawn(|| stall.loader.close());
        });
        assert_eq!(waiting.join().unwrap(), Err(Error::Stopped));
        no_thread_is_left(since);
    });
}

#[test]
fn the_state_is_told_while_another_thread_waits() {
    let stall = Stall::begin();
    thread::scope(|scope| {
        scope.spawn(|| stall.loader.next(2 * SECOND).map(|_| ()));
        thread::sleep(Duration::from_millis(100));
        let since = Instant::now();
        assert_eq!(stall.loader.state().batches(), 0);
        assert!(since.elapsed() < SECOND / 2, "{:?}", since.elapsed());
        stall.loader.close();
    });
}

#[test]
fn patience_may_be_endless() {
    let stall = Stall::begin();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| stall.loader.next(Duration::MAX).map(|_| ()));
        thread::sleep(Duration::from_millis(100));
        stall.loader.close();
        assert_eq!(waiting.join().unwrap(), Err(Error::Stopped));
    });
}
