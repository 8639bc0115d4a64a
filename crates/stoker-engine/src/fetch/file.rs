//! Local files, read on the runtime's blocking threads.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::error::FetchErrorKind;

use super::ObjectInfo;
use super::failure::Failure;

/// Opens a file.
pub(super) async fn open(path: &str) -> Result<(File, ObjectInfo), Failure> {
    let path = path.to_owned();
    on_blocking_thread(move || {
        let path = Path::new(&path);
        // To open a pipe is to wait for its writer, and to open a device may do anything.
        if !std::fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = File::open(path)?;
        let found = file.metadata()?;
        Ok(found.is_file().then_some((file, found)))
    })
    .await?
    .map(|(file, found)| (file, describe(&found)))
    .ok_or_else(|| Failure::permanent(FetchErrorKind::NotFound, "not a file"))
}

/// Reads a part of a file, which is known to have it.
pub(super) async fn read(file: File, range: Range<u64>) -> Result<Bytes, Failure> {
    // Not there: what many threads have of the allocator is more than what one has.
    let mut bytes = vec![0; (range.end - range.start) as usize];
    on_blocking_thread(move || {
        file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    })
    .await
}

async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Failure::of_file(&error)),
        Err(error) => Err(Failure::transient(error.to_string())),
    }
}

fn describe(found: &Metadata) -> ObjectInfo {
    let modified = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    ObjectInfo { size: found.len(), version: modified.map(|since| since.as_nanos().to_string()) }
}
