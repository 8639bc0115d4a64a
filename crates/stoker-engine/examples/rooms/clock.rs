//! Processor time, in nanoseconds: what others on the machine do hardly counts.

use rustix::time::{ClockId, clock_gettime};

/// Of this thread.
pub(crate) fn of_thread() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Of all threads of this process.
pub(crate) fn of_process() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
