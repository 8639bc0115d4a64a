//! Whether the system tells of threads what they had of the cores.

use std::time::{Duration, Instant};

/// Longer than a thread runs before Linux has counted something of it.
const LONG_ENOUGH: Duration = Duration::from_millis(200);

/// Whether it tells how long a thread was on a core. Some systems have no such file, or zeros in it; and in
/// that of a thread that has just begun there are zeros on all of them.
pub fn scheduler_tells_of_threads() -> bool {
    let since = Instant::now();
    while since.elapsed() < LONG_ENOUGH {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        if told.split_ascii_whitespace().next().is_some_and(|on_core| on_core != "0") {
            return true;
        }
    }
    false
}
