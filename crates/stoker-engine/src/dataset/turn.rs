//! Whose turn it is to build the missing indexes of a dataset.
//!
//! The ranks of a job on one machine all start at once. If each built what is missing, the same
//! shards would be read and copied many times over; so one builds, and the others wait and then open
//! what it built. A lock of the system ends with the process that holds it, however that ends. Where
//! a file system has no locks the work is done more than once, and no harm is done.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::sidecar::{Key, Place};

/// How often it is looked whether the one who builds is done.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// The right to build, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    lock: Option<(File, PathBuf)>,
}

impl Turn {
    /// Waits until nobody else builds a dataset with the same indexes; `waiting` is called again and
    /// again meanwhile.
    pub(super) fn take(
        places: &[Place],
        keys: impl Iterator<Item = Key>,
        waiting: &mut dyn FnMut(),
    ) -> Self {
        let mut hash = Xxh3::new();
        keys.for_each(|key| hash.update(&key.to_bytes()));
        let name = format!(".stoker-{:016x}.lock", hash.digest());
        let mut paths = places.iter().map(|place| place.folder.join(&name));
        let lock = paths.find_map(|path| Some((open(&path)?, path)));
        let Some((file, path)) = lock else { return Self { lock: None } };
        loop {
            match file.try_lock() {
                Ok(()) => return Self { lock: Some((file, path)) },
                Err(TryLockError::WouldBlock) => waiting(),
                Err(TryLockError::Error(_)) => return Self { lock: None },
            }
            sleep(LOOKED_EVERY);
        }
    }
}

fn open(path: &PathBuf) -> Option<File> {
    path.parent().map(fs::create_dir_all)?.ok()?;
    OpenOptions::new().create(true).append(true).open(path).ok()
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((file, path)) = &self.lock {
            // Those who wait hold the file by now; one that comes later makes another.
            fs::remove_file(path).ok();
            // A child that was forked meanwhile has the file too, so closing it would not do.
            file.unlock().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::sidecar::places;
    use crate::fetch::ObjectInfo;
    use crate::sample::Location;

    #[test]
    fn nobody_waits_for_a_child_that_was_forked_while_its_parent_had_the_turn() {
        let folder = tempfile::tempdir().unwrap();
        let source = Location::parse("s3://bucket/x.jsonl").unwrap();
        let places = places(&source, folder.path().to_str(), "").unwrap();
        let take = || Turn::take(&places, std::iter::empty(), &mut || panic!("it is held"));
        let first = take();
        let (file, path) = first.lock.as_ref().unwrap();
        // What a forked child has is another descriptor of the same open file.
        let (of_the_child, path) = (file.try_clone().unwrap(), path.clone());
        let waits = OpenOptions::new().append(true).open(&path).unwrap();
        drop(first);
        assert!(waits.try_lock().is_ok(), "the lock is free, though the child has the file");
        drop((of_the_child, take()));
    }

    #[test]
    fn the_second_waits_until_the_first_is_done_and_another_dataset_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let source = Location::parse("s3://bucket/x.jsonl").unwrap();
        let places = places(&source, folder.path().to_str(), "").unwrap();
        let take = |size: u64, waiting: &mut dyn FnMut()| {
            let info = ObjectInfo { size, version: None };
            Turn::take(&places, [Key::new(&source, &info, 9, "")].into_iter(), waiting)
        };
        let mut first = Some(take(1, &mut || panic!("nobody else is there")));
        let other = take(2, &mut || panic!("it is another dataset"));
        let mut waited = 0;
        let second = take(1, &mut || {
            waited += 1;
            first.take_if(|_| waited == 3);
        });
        assert_eq!(waited, 3);
        drop((second, other));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }
}
