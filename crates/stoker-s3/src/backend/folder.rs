//! Objects as files: `root/bucket/key`.
//!
//! A key names a file only if it is a plain relative path, so no key leads out of its bucket. A
//! file's ETag is made from its size and modification time, as reading it all would make every HEAD
//! as dear as a GET. A new object is written beside its place and renamed into it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::xxh3_128;

use super::{Meta, Object};
use crate::body::Source;

/// Starts the names of files that are being written; they are never listed.
const PARTIAL: &str = ".stoker-partial-";

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    writes: AtomicU64,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, writes: AtomicU64::new(0) }
    }

    pub(super) fn buckets(&self) -> io::Result<Vec<String>> {
        Ok(entries(&self.root)?.into_iter().filter(|entry| entry.folder).map(|e| e.name).collect())
    }

    pub(super) fn has_bucket(&self, bucket: &str) -> bool {
        self.bucket(bucket).is_some_and(|path| path.is_dir())
    }

    pub(super) fn create_bucket(&self, bucket: &str) -> io::Result<()> {
        fs::create_dir_all(self.bucket(bucket).ok_or(ErrorKind::InvalidInput)?)
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> io::Result<Option<Object>> {
        let Some(path) = self.file(bucket, key) else { return Ok(None) };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(None);
        }
        let meta = describe(&found)?;
        let source = Source::File { file: Arc::new(file), start: 0, end: meta.size };
        Ok(Some(Object { meta, source }))
    }

    pub(super) fn put(&self, bucket: &str, key: &str, bytes: &[u8]) -> io::Result<Meta> {
        let path = self.file(bucket, key).ok_or(ErrorKind::InvalidInput)?;
        let folder = path.parent().ok_or(ErrorKind::InvalidInput)?;
        fs::create_dir_all(folder)?;
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let partial = folder.join(format!("{PARTIAL}{}-{number}", std::process::id()));
        fs::write(&partial, bytes)?;
        fs::rename(&partial, &path)?;
        describe(&fs::metadata(path)?)
    }

    pub(super) fn delete(&self, bucket: &str, key: &str) -> io::Result<()> {
        let Some(path) = self.file(bucket, key) else { return Ok(()) };
        match fs::remove_file(path) {
            Err(error) if !is_absence(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Walks only the folders that can hold such keys.
    pub(super) fn list(
        &self,
        bucket: &str,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> io::Result<Vec<(String, Meta)>> {
        let mut found = Vec::new();
        if let Some(path) = self.bucket(bucket) {
            walk(&path, "", &Wanted { prefix, after, limit }, &mut found)?;
        }
        Ok(found)
    }

    fn bucket(&self, bucket: &str) -> Option<PathBuf> {
        (is_plain(bucket) && !bucket.contains('/')).then(|| self.root.join(bucket))
    }

    fn file(&self, bucket: &str, key: &str) -> Option<PathBuf> {
        is_plain(key).then_some(())?;
        self.bucket(bucket).map(|path| path.join(key))
    }
}

/// Whether the path has only named segments, and each `/` parts two of them.
fn is_plain(key: &str) -> bool {
    let segments = key.split('/').all(|segment| !segment.is_empty() && segment != ".");
    let normal = |part| matches!(part, Component::Normal(_));
    segments && !key.contains('\0') && Path::new(key).components().all(normal)
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::InvalidFilename
    )
}

fn describe(found: &fs::Metadata) -> io::Result<Meta> {
    let modified = found.modified()?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let identity = format!("{}-{}", found.len(), since.as_nanos());
    let etag = format!("{:032x}", xxh3_128(identity.as_bytes()));
    Ok(Meta { size: found.len(), etag, modified })
}

struct Wanted<'a> {
    prefix: &'a str,
    after: &'a str,
    limit: usize,
}

struct Entry {
    name: String,
    folder: bool,
}

/// What lies in a folder, in the order of keys: `a.txt` comes before the files in `a`, as `.` comes
/// before `/`.
fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(PARTIAL) {
            entries.push(Entry { name, folder: entry.path().is_dir() });
        }
    }
    let key = |entry: &Entry| format!("{}{}", entry.name, if entry.folder { "/" } else { "" });
    entries.sort_by_cached_key(key);
    Ok(entries)
}

fn walk(
    folder: &Path,
    base: &str,
    wanted: &Wanted<'_>,
    found: &mut Vec<(String, Meta)>,
) -> io::Result<()> {
    for entry in entries(folder)? {
        if found.len() >= wanted.limit {
            return Ok(());
        }
        let path = folder.join(&entry.name);
        let key = format!("{base}{}", entry.name);
        if entry.folder {
            let base = key + "/";
            let inside = base.starts_with(wanted.prefix) || wanted.prefix.starts_with(&base);
            let ahead = base.as_str() > wanted.after || wanted.after.starts_with(&base);
            if inside && ahead {
                walk(&path, &base, wanted, found)?;
            }
        } else if key.starts_with(wanted.prefix) && key.as_str() > wanted.after {
            match fs::metadata(&path) {
                Ok(meta) => found.push((key, describe(&meta)?)),
                Err(error) if is_absence(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leads_out_of_its_bucket() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("secret"), "x").unwrap();
        let folder = Folder::new(root.path().to_owned());
        folder.create_bucket("b").unwrap();
        for key in ["../secret", "/etc/hostname", "a/../../secret", "./../secret", "", "a//b", "a/"]
        {
            assert!(folder.get("b", key).unwrap().is_none(), "{key}");
            assert!(folder.put("b", key, b"y").is_err(), "{key}");
        }
        assert!(folder.get("..", "secret").unwrap().is_none());
        assert_eq!(fs::read(root.path().join("secret")).unwrap(), b"x");
    }

    #[test]
    fn keys_are_listed_in_the_order_of_their_bytes() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path().to_owned());
        let mut keys = ["a/b/c", "a.txt", "a/a", "a-b", "b", "ä", "a0", "a/b.c"].map(str::to_owned);
        for key in &keys {
            folder.put("b", key, b"").unwrap();
        }
        keys.sort();
        let listed = |prefix, after, limit| -> Vec<String> {
            let found = folder.list("b", prefix, after, limit).unwrap();
            found.into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(listed("", "", 100), keys);
        for after in &keys {
            let expected: Vec<_> = keys.iter().filter(|key| *key > after).cloned().collect();
            assert_eq!(listed("", after, 100), expected);
        }
        assert_eq!(listed("a/b", "", 100), ["a/b.c", "a/b/c"]);
        assert_eq!(listed("", "", 2), keys[..2]);
    }
}
