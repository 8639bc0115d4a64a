//! What the process may use of the machine: cores and memory, as limited by its control group.

use std::fs;

/// The share of memory that a loader takes by default, and the most it takes: a trainer needs the
/// rest for itself, and no data set needs more to keep a step ahead.
const SHARE: u64 = 4;
const MOST: u64 = 16 << 30;

/// Bytes that a loader uses where the recipe does not say.
pub(super) fn default_memory() -> u64 {
    let limits = [cgroup_limit(), meminfo("MemTotal:")];
    let usable = limits.into_iter().flatten().min().unwrap_or(4 << 30);
    (usable / SHARE).min(MOST)
}

/// Cores that the process may run on.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn cgroup_limit() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
    read("/sys/fs/cgroup/memory.max")
        .or_else(|| read("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
}

fn meminfo(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn defaults_fit_the_machine() {
        assert!((64 << 20..=super::MOST).contains(&super::default_memory()));
        assert!(super::cores() >= 1);
    }
}
