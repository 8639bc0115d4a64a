//! How many requests may be in flight where a process may have few files open.
//!
//! Each takes a descriptor, of a connection or of a file. What is left is shared with the trainer,
//! with other loaders and with connections that idle, so a fetcher takes half of it at most: with the
//! usual limit of 1024 files that is never felt, and with 64 it works with fewer connections.

use crate::error::files_allowed;

/// As many as are wanted, or as there are descriptors for.
pub(super) fn requests(wanted: u32) -> usize {
    let wanted = wanted.max(1) as usize;
    files_allowed().map_or(wanted, |allowed| affordable(wanted, allowed, files_open()))
}

fn affordable(wanted: usize, allowed: u64, open: u64) -> usize {
    let half = allowed.saturating_sub(open) / 2;
    wanted.min(usize::try_from(half).unwrap_or(usize::MAX).max(1))
}

/// Files that this process has open; all that it may have, where not even that can be looked up.
fn files_open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(u64::MAX, |open| open.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_left_is_taken_and_at_least_one() {
        assert_eq!(affordable(64, 1024, 30), 64);
        assert_eq!(affordable(64, 64, 10), 27);
        assert_eq!([affordable(64, 10, 10), affordable(64, 10, u64::MAX)], [1, 1]);
        assert_eq!(affordable(3, u64::MAX, 10), 3);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_open_file_counts() {
        let before = files_open();
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        // Other tests of this process open and close files too.
        assert!(files_open() > before + 25, "{} after {before}", files_open());
        drop(files);
    }
}
