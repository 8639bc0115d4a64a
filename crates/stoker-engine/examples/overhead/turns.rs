//! A loader that makes some batches each time that it is told to, counting what it does or not. Both in one
//! process: two of the very same program, in turns on the same work, were seen to differ by a tenth and more.
//!
//! Between the turns it is at rest: so many batches are ready, and nothing is worked at. So what is spent in a turn,
//! from the first batch that is taken until all is at rest again, is what as many batches take.

use std::ops::RangeInclusive;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use stoker_engine::loader::Loader;
use stoker_engine::metrics;

use crate::{BATCH, SAMPLES, loader, take};

/// It is at rest if it took no more than so many nanoseconds within `LOOK`.
const STILL: u64 = 500_000;
const LOOK: Duration = Duration::from_millis(40);

/// A turn for each line of stdin, which says whether it is counted: `on` or `off`.
pub(crate) fn listen(model: &str, pixels: RangeInclusive<usize>, batches: u64) {
    // As far ahead at the end of a turn as at its beginning.
    let (loader, _store) = loader(model, pixels, &json!({"prefetch": 4}));
    assert_eq!(batches * BATCH % SAMPLES as u64, 0, "whole epochs");
    for line in std::io::stdin().lines() {
        metrics::switch(line.unwrap() == "on");
        println!("{}", turn(&loader, batches));
    }
}

/// Nanoseconds of all threads for so many batches.
pub(crate) fn turn(loader: &Loader, batches: u64) -> u64 {
    let begin = spent();
    for _ in 0..batches {
        take(loader);
    }
    loop {
        let before = spent();
        sleep(LOOK);
        if spent() - before < STILL {
            return before - begin;
        }
    }
}

/// Nanoseconds that processors worked for this program so far.
#[expect(unsafe_code, reason = "the standard library has no clock of processor time")]
fn spent() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux and macOS, and `now` is a timespec that may be written.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
