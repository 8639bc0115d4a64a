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

/// A file, what there is to know of it, and the bytes that were read already.
pub(super) type Found = (File, ObjectInfo, Option<Bytes>);

/// Opens a file; and reads `part` of it in the same go, if the file has all of it. A thread is woken
/// for each go, and may take the core of a trainer for that.
pub(super) async fn open(path: &str, part: Option<Range<u64>>) -> Result<Found, Failure> {
    let path = path.to_owned();
    let mut room = part.map(|part| (vec_for(&part), part));
    on_blocking_thread(move || {
        let path = Path::new(&path);
        // To open a pipe is to wait for its writer, and to open a device may do anything.
        if !std::fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = File::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(None);
        }
        room = room.filter(|(_, part)| part.end <= found.len());
        if let Some((bytes, part)) = &mut room {
            file.read_exact_at(bytes, part.start)?;
        }
        Ok(Some((file, describe(&found), room.map(|(bytes, _)| bytes.into()))))
    })
    .await?
    .ok_or_else(|| Failure::permanent(FetchErrorKind::NotFound, "not a file"))
}

/// Reads a part of a file, which is known to have it.
pub(super) async fn read(file: File, part: Range<u64>) -> Result<Bytes, Failure> {
    let mut bytes = vec_for(&part);
    on_blocking_thread(move || {
        file.read_exact_at(&mut bytes, part.start)?;
        Ok(bytes.into())
    })
    .await
}

/// Room for a part. It is had where the files are asked for, not on the threads that read them: what
/// many threads have of the allocator is more than what one has.
fn vec_for(part: &Range<u64>) -> Vec<u8> {
    vec![0; (part.end - part.start) as usize]
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn opened(part: Option<Range<u64>>) -> Result<Found, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters");
        std::fs::write(&path, "abcdef").unwrap();
        open(path.to_str().unwrap(), part).await
    }

    #[tokio::test]
    async fn a_part_comes_with_the_file_if_the_file_has_it() {
        for (part, comes) in [(2..5, Some("cde")), (0..6, Some("abcdef")), (5..7, None)] {
            let (file, info, read) = opened(Some(part.clone())).await.unwrap();
            assert_eq!(read.as_deref(), comes.map(str::as_bytes), "{part:?}");
            assert_eq!(info.size, 6);
            assert_eq!(super::read(file, 1..3).await.unwrap(), "bc", "of {part:?}");
        }
        assert_eq!(opened(None).await.unwrap().2, None);
    }
}
