//! What the system gave a thread of a core, and for how long it let it wait for one.
//!
//! A thread that has work and no core looks busy to every clock that goes on meanwhile. The scheduler knows
//! the difference: Linux tells both sums of each thread (`schedstat`), for a microsecond. Elsewhere nothing
//! is known, and nothing is counted.

#[cfg(target_os = "linux")]
use std::fs::File;
#[cfg(target_os = "linux")]
use std::os::unix::fs::FileExt;

use super::{Counter, is_on};

/// Nanoseconds of threads, added up.
#[derive(Debug, Default)]
pub struct CoreMeter {
    /// On a core.
    pub on_core_nanos: Counter,
    /// Ready to run, while others had the cores.
    pub delayed_nanos: Counter,
}

/// The two sums of one thread.
#[derive(Debug)]
pub struct CoreTime {
    #[cfg(target_os = "linux")]
    told: Option<File>,
    seen: [u64; 2],
}

impl CoreTime {
    /// Of the thread that calls this, from now on.
    pub fn of_this_thread() -> Self {
        let mut time = Self {
            #[cfg(target_os = "linux")]
            told: File::open("/proc/thread-self/schedstat").ok(),
            seen: [0; 2],
        };
        time.seen = time.now();
        time
    }

    /// Counts what has come since this was asked last.
    pub fn count(&mut self, meter: &CoreMeter) {
        if !is_on() {
            return;
        }
        let now = self.now();
        let [on_core, delayed] = [0, 1].map(|sum| now[sum].saturating_sub(self.seen[sum]));
        meter.on_core_nanos.add(on_core);
        meter.delayed_nanos.add(delayed);
        self.seen = now;
    }

    /// The sums; what they were where they can't be read.
    #[cfg(target_os = "linux")]
    fn now(&self) -> [u64; 2] {
        let mut text = [0; 64];
        let read = self.told.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        read.and_then(|length| sums(&text[..length])).unwrap_or(self.seen)
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> [u64; 2] {
        self.seen
    }
}

/// The first two numbers of a line.
#[cfg(target_os = "linux")]
fn sums(line: &[u8]) -> Option<[u64; 2]> {
    let mut numbers = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let mut number = || numbers.next()?.parse().ok();
    Some([number()?, number()?])
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::hint::black_box;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    const LONG_ENOUGH: u64 = 20_000_000;

    /// Some systems tell nothing, or zeros: then there is nothing to count.
    fn is_told() -> bool {
        CoreTime::of_this_thread().seen != [0; 2]
    }

    #[test]
    fn a_thread_that_computes_has_a_core_and_one_that_sleeps_has_none() {
        if !is_told() {
            return;
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
        if !is_told() {
            return;
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
        assert_eq!(sums(b"1057709 3427427 3\n"), Some([1_057_709, 3_427_427]));
        for line in [&b""[..], b"7", b"a 1 2", b"\xff 1 2"] {
            assert_eq!(sums(line), None);
        }
    }
}
