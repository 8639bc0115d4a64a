//! The ledger: the bad samples that a run went on from, in files, while it goes on.
//!
//! Each rank appends to a file of its own in the ledger's folder: a line of JSON for each bad sample
//! of a batch, written before the batch is handed over. A run that resumes or begins anew first cuts
//! what was written of batches that it is going to have again. So the files of all ranks together
//! hold the bad samples of exactly the batches before the state, each once, however often and on
//! whatever numbers of ranks the run was resumed. Entries of one file are in the order of their
//! batches, so what has to go is always its end. Where there are fewer ranks than there were before,
//! the files that are left over are cut by the ranks that are there, each by one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::Batch;
use crate::error::{
    BadSample, DatasetError, DatasetErrorKind, Error, Outcome, Result, too_many_files,
};
use crate::metrics::Room;
use crate::recipe::Component;
use crate::sample::{BatchName, Rank};

/// The file of one rank, open for appending.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    file: File,
}

/// A line of the ledger.
#[derive(Serialize)]
struct Entry<'a> {
    /// Place of the batch in the global sequence.
    sequence: u64,
    lane: u32,
    number: u64,
    dataset: &'a str,
    row: u64,
    outcome: Outcome,
    room: Room,
    code: &'a str,
    reason: &'a str,
    hint: Option<&'a str>,
    origin: &'a str,
}

/// What has to be known of a line that was written before.
#[derive(Deserialize)]
struct Written {
    sequence: u64,
}

impl Ledger {
    /// The ledger of a rank that goes on with the batches from `start` on.
    pub(super) fn open(folder: &Path, rank: Rank, start: u64) -> Result<Self> {
        let failed = |error| unwritable(folder, &error);
        fs::create_dir_all(folder).map_err(failed)?;
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if rank_of(&path)
                .is_some_and(|index| index % u64::from(rank.of) == u64::from(rank.index))
            {
                cut(&path, start)?;
            }
        }
        let path = folder.join(format!("rank-{}.jsonl", rank.index));
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| unwritable(&path, &error))?;
        Ok(Self { path, file })
    }

    /// Writes down the bad samples of a batch, in one piece.
    pub(super) fn write(&mut self, batch: &Batch, datasets: &[Component]) -> Result<()> {
        let mut lines = Vec::new();
        for bad in batch.bad_samples() {
            let entry = Entry::of(bad, batch, datasets);
            serde_json::to_writer(&mut lines, &entry).expect("numbers and texts become JSON");
            lines.push(b'\n');
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.file.write_all(&lines).map_err(|error| unwritable(&self.path, &error))
    }
}

impl<'a> Entry<'a> {
    fn of(bad: &'a BadSample, batch: &Batch, datasets: &'a [Component]) -> Self {
        let BatchName { lane, number } = batch.name();
        Self {
            sequence: batch.sequence(),
            lane,
            number,
            dataset: &datasets[bad.id.dataset as usize].name,
            row: bad.id.row,
            outcome: bad.outcome,
            room: bad.room,
            code: &bad.code,
            reason: &bad.reason,
            hint: bad.hint.as_deref(),
            origin: &bad.origin,
        }
    }
}

/// The rank that a file of the folder belongs to; `None` for other files.
fn rank_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("rank-")?.strip_suffix(".jsonl")?.parse().ok()
}

/// Cuts a file before its first entry of a batch from `start` on. A last line that was not written
/// to its end goes too: its batch was never handed over.
fn cut(path: &Path, start: u64) -> Result<()> {
    let failed = |error| unwritable(path, &error);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let mut lines = BufReader::new(&file);
    let (mut kept, mut line) = (0, Vec::new());
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        match serde_json::from_slice(&line) {
            Ok(Written { sequence }) if sequence < start && line.ends_with(b"\n") => {}
            Ok(_) => break,
            Err(_) if !line.ends_with(b"\n") => break,
            Err(_) => return Err(no_ledger(path)),
        }
        kept += line.len() as u64;
        line.clear();
    }
    if kept < file.metadata().map_err(failed)?.len() {
        file.set_len(kept).map_err(failed)?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    const MEND: &str = "engine.ledger names its folder: mend that, or leave the ledger out";
    let reason = format!("the ledger can't be written: {error}");
    problem(path, reason, &too_many_files(error).unwrap_or_else(|| MEND.to_owned()))
}

fn no_ledger(path: &Path) -> Error {
    let reason = "there are lines that no ledger has".to_owned();
    problem(path, reason, "move the file away, or name another folder in engine.ledger")
}

fn problem(path: &Path, reason: String, hint: &str) -> Error {
    let (kind, hint) = (DatasetErrorKind::Disk, Some(hint.to_owned()));
    let uri = path.display().to_string();
    Error::Dataset(DatasetError { kind, line: None, reason, hint, uri })
}
