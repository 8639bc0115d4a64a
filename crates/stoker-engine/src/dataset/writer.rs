//! The files of an index while it is written: they vanish unless they are published whole, and those
//! of a builder that was killed when the next one comes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sidecar::{Header, Place, Sidecar};
use crate::error::{DatasetError, DatasetErrorKind, Error, Result, too_many_files};

const NO_SPACE: &str = "free some space, or set dataset.index-dir to a folder with more of it";
const NO_PLACE: &str = "set dataset.index-dir to a folder that can be written";

/// Names of files that are being written.
const PREFIX: &str = ".stoker-";
const SUFFIX: &str = ".tmp";
const YOUNG: Duration = Duration::from_mins(1);

/// The files that are written.
pub(super) struct Writer {
    records: Temporary,
    folder: PathBuf,
    lines: Option<Temporary>,
}

impl Writer {
    pub(super) fn claim(places: &[Place]) -> Result<(Self, &Place)> {
        let mut last = None;
        for place in places {
            let claimed =
                fs::create_dir_all(&place.folder).and_then(|()| Temporary::create(&place.folder));
            match claimed {
                Ok(records) => {
                    let folder = place.folder.clone();
                    return Ok((Self { records, folder, lines: None }, place));
                }
                Err(error) => last = Some(unwritable(&place.index(), &error)),
            }
        }
        Err(last.expect("there is at least one place"))
    }

    /// The file of the index itself.
    pub(super) fn records(&self) -> &File {
        &self.records.file
    }

    /// Begins a file for what is taken out of the source.
    pub(super) fn take_out(&mut self) -> Result<()> {
        let lines = Temporary::create(&self.folder);
        self.lines = Some(lines.map_err(|error| self.unwritable(&error))?);
        Ok(())
    }

    /// The file for what is taken out of the source, if there is one.
    pub(super) fn lines(&self) -> Option<&File> {
        self.lines.as_ref().map(|lines| &lines.file)
    }

    pub(super) fn unwritable(&self, error: &io::Error) -> Error {
        unwritable(&self.records.path, error)
    }

    /// Gives the files their names; `header` knows all but the size of what was taken out. That
    /// comes first: an index is never seen without it.
    pub(super) fn publish(mut self, header: Header, place: &Place) -> Result<(Sidecar, File)> {
        let path = self.records.path.clone();
        let written = |error: io::Error| unwritable(&path, &error);
        let lines = match self.lines.take() {
            Some(lines) => {
                let size = lines.file.metadata().map_err(written)?.len();
                lines.publish(&place.lines(header.fingerprint, header.key)).map_err(written)?;
                Some(size)
            }
            None => None,
        };
        let header = Header { lines, ..header };
        let file = self.publish_index(header, place).map_err(written)?;
        Ok((Sidecar::at(place, header, &file).map_err(written)?, file))
    }

    fn publish_index(mut self, header: Header, place: &Place) -> io::Result<File> {
        self.records.file.seek(SeekFrom::Start(0))?;
        self.records.file.write_all(&header.to_bytes())?;
        self.records.publish(&place.index())
    }
}

/// A file that vanishes unless it is published.
struct Temporary {
    file: File,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    /// A new file with a name that nobody else has, in this process or another.
    fn create(folder: &Path) -> io::Result<Self> {
        let process = std::process::id();
        let mut number = 0;
        loop {
            let path = folder.join(format!("{PREFIX}{process}-{number}{SUFFIX}"));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // So that others see that somebody writes it; see `sweep`.
                    file.try_lock().ok();
                    return Ok(Self { file, path, published: false });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives it its name, when all of it is safely stored.
    fn publish(mut self, name: &Path) -> io::Result<File> {
        self.file.sync_all()?;
        fs::rename(&self.path, name)?;
        self.published = true;
        if let Some(folder) = name.parent() {
            // Some file systems can't sync folders; the index is then rebuilt after a power cut.
            File::open(folder).and_then(|folder| folder.sync_all()).ok();
        }
        self.file.try_clone()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // A file that can't be removed does no harm: its name is never read.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Removes what builders left that were killed: files that nobody holds any more.
pub(super) fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_one = name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        if is_one && let Ok(file) = File::open(entry.path()) {
            let age =
                file.metadata().and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
            // A new one may not be held yet.
            if age.is_some_and(|age| age > YOUNG) && file.try_lock().is_ok() {
                fs::remove_file(entry.path()).ok();
            }
        }
    }
}

pub(super) fn unwritable(path: &Path, error: &io::Error) -> Error {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind());
    let hint =
        too_many_files(error).unwrap_or_else(|| if full { NO_SPACE } else { NO_PLACE }.to_owned());
    Error::Dataset(DatasetError {
        kind: DatasetErrorKind::Disk,
        line: None,
        reason: format!("the index can't be written: {error}"),
        hint: Some(hint),
        uri: path.display().to_string(),
    })
}
