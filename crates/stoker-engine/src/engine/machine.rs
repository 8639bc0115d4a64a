//! What the process may use of the machine: cores and memory, as limited by its control group, and
//! shared evenly with the other ranks on it.

use std::fs;

use crate::fetch::CacheMemory;
use crate::recipe::Engine;

/// The share of memory that a loader takes by default, and the most it takes: a trainer needs the
/// rest for itself, and no data set needs more to keep a step ahead.
const SHARE: u64 = 4;
const MOST: u64 = 16 << 30;

/// Bytes that a loader uses.
pub(crate) fn memory(engine: &Engine) -> u64 {
    engine.memory.unwrap_or_else(|| default_memory(ranks_here(engine)))
}

/// Memory for a local cache. What waits to be written is an eighth of what there is for compressed
/// images, and no more than half a second of what a fast disk writes; where entries lie is beside it,
/// and bounded by it.
pub(super) fn cache_memory(engine: &Engine) -> CacheMemory {
    let memory = memory(engine);
    CacheMemory { queue: (memory / 32).min(64 << 20), places: memory / 16 }
}

/// Worker threads of a loader.
pub(crate) fn workers(engine: &Engine) -> usize {
    engine.workers.map_or_else(|| cores(ranks_here(engine)), |count| count as usize)
}

fn ranks_here(engine: &Engine) -> u32 {
    engine.local_world_size.unwrap_or(1).max(1)
}

fn default_memory(ranks: u32) -> u64 {
    let limits = [cgroup_limit(), meminfo("MemTotal:")];
    let usable = limits.into_iter().flatten().min().unwrap_or(4 << 30);
    (usable / SHARE / u64::from(ranks)).min(MOST)
}

/// Cores that the process may run on, shared by so many ranks.
pub(super) fn cores(ranks: u32) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores / ranks as usize).max(1)
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
    use super::*;

    #[test]
    fn defaults_fit_the_machine() {
        let engine = Engine::default();
        assert!((64 << 20..=MOST).contains(&memory(&engine)));
        assert!(workers(&engine) >= 1);
    }

    #[test]
    fn ranks_share_their_machine() {
        let of = |ranks| Engine { local_world_size: Some(ranks), ..Engine::default() };
        assert_eq!(workers(&of(1)), workers(&Engine::default()));
        assert_eq!(workers(&of(1024)), 1);
        assert!(memory(&of(1024)) <= memory(&of(1)) / 64);
        let said = Engine { memory: Some(7), workers: Some(3), ..of(8) };
        assert_eq!((memory(&said), workers(&said)), (7, 3), "what the recipe says is for each");
    }
}
