//! What the system gave a thread of a core, and for how long it let it wait for one.
//!
//! A thread that has work and no core looks busy to every clock that goes on meanwhile. The scheduler knows
//! the difference: Linux tells both sums of each thread in a file. It is opened each time, for some
//! microseconds and so not often, since files that stay open may be short. Elsewhere nothing is known, and
//! nothing is counted.

use std::time::{Duration, Instant};

use super::{Counter, is_on};

/// How long the sums are left to grow before they are looked at again.
const PAUSE: Duration = Duration::from_millis(10);

/// Nanoseconds of threads, added up.
#[derive(Debug, Default)]
pub struct CoreMeter {
    /// On a core.
    pub on_core_nanos: Counter,
    /// Ready to run, while others had the cores.
    pub delayed_nanos: Counter,
}

/// The two sums of one thread, as they were when they were looked at.
#[derive(Debug)]
pub struct CoreTime {
    seen: [u64; 2],
    at: Instant,
}

impl CoreTime {
    /// Of the thread that calls this, from now on.
    pub fn of_this_thread() -> Self {
        Self { seen: sums().unwrap_or_default(), at: Instant::now() }
    }

    /// Counts what has come since, if that is long ago.
    pub fn count(&mut self, meter: &CoreMeter) {
        if !is_on() || self.at.elapsed() < PAUSE {
            return;
        }
        self.at = Instant::now();
        let Some(now) = sums() else { return };
        let [on_core, delayed] = [0, 1].map(|sum| now[sum].saturating_sub(self.seen[sum]));
        meter.on_core_nanos.add(on_core);
        meter.delayed_nanos.add(delayed);
        self.seen = now;
    }
}

/// Those of this thread; nothing where they can't be read.
fn sums() -> Option<[u64; 2]> {
    #[cfg(target_os = "linux")]
    return parsed(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?);
    #[cfg(not(target_os = "linux"))]
    None
}

/// The first two numbers of a line.
#[cfg(target_os = "linux")]
fn parsed(line: &str) -> Option<[u64; 2]> {
    let mut numbers = line.split_ascii_whitespace();
    let mut number = || numbers.next()?.parse().ok();
    Some([number()?, number()?])
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::hint::black_box;
    use std::thread::sleep;

    use super::*;
    use crate::testing::scheduler_tells_of_threads;

    const LONG_ENOUGH: u64 = 20_000_000;

    #[test]
    fn a_thread_that_computes_has_a_core_and_one_that_sleeps_has_none() {
        if !scheduler_tells_of_threads() {
            return; // then there is nothing to count
        }
        let (meter, mut time) = (CoreMeter::default(), CoreTime::of_this_thread());
        let since = Instant::now();
        while meter.on_core_nanos.get() < LONG_ENOUGH {
            black_box((0..100_000_u64).fold(0, |sum, n| sum ^ n));
            time.count(&meter);
            assert!(since.elapsed() < Duration::from_secs(30), "no time passes");
        }
        let wall = since.elapsed().as_nanos() as u64;
        let both = meter.on_core_nanos.get() + meter.delayed_nanos.get();
        assert!(both <= wall + LONG_ENOUGH, "{both} of {wall}");
        let before = meter.on_core_nanos.get();
        sleep(Duration::from_millis(40));
        time.count(&meter);
        assert!(meter.on_core_nanos.get() - before < LONG_ENOUGH, "asleep");
    }

    #[test]
    fn a_thread_whose_core_others_have_waits_for_it() {
        if !scheduler_tells_of_threads() {
            return; // then there is nothing to count
        }
        let meter = CoreMeter::default();
        let cores = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..1024).find(|core| cores.is_set(*core)).unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(first);
        let compute = || {
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            let (mut time, since) = (CoreTime::of_this_thread(), Instant::now());
            while meter.delayed_nanos.get() < LONG_ENOUGH {
                black_box((0..100_000_u64).fold(0, |sum, n| sum ^ n));
                time.count(&meter);
                assert!(since.elapsed() < Duration::from_secs(30), "nobody waits");
            }
        };
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(compute);
            }
        });
    }

    #[test]
    fn lines_that_are_none_tell_nothing() {
        assert_eq!(parsed("1057709 3427427 3\n"), Some([1_057_709, 3_427_427]));
        for line in ["", "7", "a 1 2"] {
            assert_eq!(parsed(line), None);
        }
    }
}
