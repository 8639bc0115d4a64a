//! What the process may use of the machine: cores and memory, as limited by its control group, and
//! shared evenly with the other ranks on it.

use std::{env, fs};

/// How launchers (torchrun, Accelerate, Lightning, Ray Train) tell a rank how many of them share its
/// machine.
const RANKS_HERE: &str = "LOCAL_WORLD_SIZE";

/// The share of memory that a loader takes by default, and the most it takes: a trainer needs the
/// rest for itself, and no data set needs more to keep a step ahead.
const SHARE: u64 = 4;
const MOST: u64 = 16 << 30;

/// Bytes that a loader uses where the recipe does not say.
pub(super) fn default_memory() -> u64 {
    let limits = [cgroup_limit(), meminfo("MemTotal:")];
    let usable = limits.into_iter().flatten().min().unwrap_or(4 << 30);
    (usable / SHARE / ranks_here()).min(MOST)
}

/// Cores that the process may run on, its share of them.
pub(super) fn cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores / ranks_here() as usize).max(1)
}

fn ranks_here() -> u64 {
    ranks(env::var(RANKS_HERE).ok().as_deref())
}

/// What is no number of ranks says nothing.
fn ranks(told: Option<&str>) -> u64 {
    told.and_then(|told| told.trim().parse().ok()).unwrap_or(1).max(1)
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

    #[test]
    fn ranks_that_share_a_machine_are_counted_if_that_is_told() {
        let told = [None, Some("8"), Some(" 2\n"), Some("0"), Some(""), Some("many")];
        assert_eq!(told.map(super::ranks), [1, 8, 2, 1, 1, 1]);
    }
}
