//! The sizes of samples that were measured, kept in a file for each dataset, so that a sample is
//! measured once: not again by another rank or process on this machine, nor when a run resumes.
//!
//! The file lies beside the index: a record of 24 bytes for each row, of all zeros where the row was
//! never measured. Its name holds a hash of all that decides the sizes, so recipes that measure
//! alike share it. Each record carries a checksum that depends on its row, and is written in one
//! piece; whoever finds one that is not whole measures again. So processes need no agreement, and it
//! may be deleted at any time. Bad samples are not kept: they may be mended.
//!
//! Where the index's folder can't be written to, the file is one without a name, of this process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::pack::SampleSize;
use crate::sample::SampleId;

/// Raised when sizes come to mean something else.
const FORMAT: u32 = 1;
const RECORD: usize = 24;
/// A record with the number of its row, as it is sent to other hosts.
const SENT_RECORD: usize = 8 + RECORD;
/// Records that are read at a time to add them up.
const AT_A_TIME: u64 = 1 << 16;

/// The known sizes of a recipe's samples.
#[derive(Debug)]
pub(crate) struct Sizes {
    datasets: Vec<SizesFile>,
}

/// Those of one dataset.
#[derive(Debug)]
struct SizesFile {
    path: PathBuf,
    identity: u64,
    rows: u64,
    file: OnceLock<Option<File>>,
}

/// A dataset whose sizes are kept.
pub(super) struct Measurable<'a> {
    pub(super) index: &'a Path,
    pub(super) rows: u64,
    /// All that decides what its rows are.
    pub(super) identity: String,
}

impl Sizes {
    /// Bytes of a sample that are sent to other hosts.
    pub(crate) const SENT: u64 = SENT_RECORD as u64;

    /// Those of datasets, measured as `measure` identifies. No file is opened before it is needed.
    pub(super) fn new<'a>(datasets: impl Iterator<Item = Measurable<'a>>, measure: &str) -> Self {
        let known = |dataset: Measurable<'_>| {
            let all = format!("{FORMAT}\n{}\n{measure}", dataset.identity);
            let identity = xxh3_64(all.as_bytes());
            let path = dataset.index.with_extension(format!("{identity:016x}.stoker-sizes"));
            SizesFile { path, identity, rows: dataset.rows, file: OnceLock::new() }
        };
        Self { datasets: datasets.map(known).collect() }
    }

    /// The size of a sample, if it was measured.
    pub(super) fn get(&self, id: SampleId) -> Option<SampleSize> {
        let known = &self.datasets[id.dataset as usize];
        let mut record = [0; RECORD];
        known.file()?.read_exact_at(&mut record, place(id.row)).ok()?;
        known.read(&record, id.row)
    }

    /// Keeps the size of a sample. Where that fails it is measured again another time.
    pub(super) fn put(&self, id: SampleId, size: &SampleSize) {
        let known = &self.datasets[id.dataset as usize];
        if let (Some(file), Some(record)) = (known.file(), known.record(size, id.row)) {
            file.write_all_at(&record, place(id.row)).unwrap_or_default();
        }
    }

    /// The file of a dataset.
    pub(crate) fn path(&self, dataset: usize) -> &Path {
        &self.datasets[dataset].path
    }

    /// What is known of a dataset from a row on, as far as it fits into so many bytes, for another
    /// host: for each known row its number and its record. And the row from which on there may be more.
    pub(crate) fn known_from(
        &self,
        dataset: usize,
        row: u64,
        most: usize,
    ) -> (Vec<u8>, Option<u64>) {
        let (mut known, mut next) = (Vec::new(), None);
        self.datasets[dataset].for_each_from(row, |row, record, _| {
            if known.len() + SENT_RECORD > most {
                next = Some(row);
                return ControlFlow::Break(());
            }
            known.extend(row.to_le_bytes());
            known.extend(record);
            ControlFlow::Continue(())
        });
        (known, next)
    }

    /// Keeps what is not known yet of what another host knows. What is not whole, or of samples that
    /// were measured in another way, is left out.
    pub(crate) fn add_known(&self, dataset: usize, known: &[u8]) {
        let file = &self.datasets[dataset];
        for (number, record) in known.as_chunks::<SENT_RECORD>().0.iter().map(halves) {
            let id = SampleId { dataset: dataset as u32, row: number };
            if number < file.rows
                && let Some(size) = file.read(record, number)
                && self.get(id).is_none()
            {
                self.put(id, &size);
            }
        }
    }

    /// How many rows of a dataset are known, and their tokens together.
    pub(crate) fn tokens(&self, dataset: usize) -> (u64, u64) {
        let (mut rows, mut tokens) = (0, 0);
        self.datasets[dataset].for_each_from(0, |_, _, size| {
            rows += 1;
            tokens += size.tokens;
            ControlFlow::Continue(())
        });
        (rows, tokens)
    }
}

/// The number of a row and its record, as they are sent.
fn halves(sent: &[u8; SENT_RECORD]) -> (u64, &[u8; RECORD]) {
    let (row, record) = sent.split_first_chunk().expect("it is longer than a number");
    let record = record.try_into().expect("that is what is left of it");
    (u64::from_le_bytes(*row), record)
}

impl SizesFile {
    fn file(&self) -> Option<&File> {
        self.file.get_or_init(|| open(&self.path).or_else(|_| unnamed()).ok()).as_ref()
    }

    /// Goes through what is known, from a row on, until it is told to stop.
    fn for_each_from(
        &self,
        row: u64,
        mut tell: impl FnMut(u64, &[u8; RECORD], SampleSize) -> ControlFlow<()>,
    ) {
        // Who only asks leaves no file.
        let own = File::open(&self.path).ok();
        let Some(file) = own.as_ref().or_else(|| self.file.get()?.as_ref()) else { return };
        let mut buffer = vec![0; AT_A_TIME as usize * RECORD];
        for start in (row..self.rows).step_by(AT_A_TIME as usize) {
            let length = read_up_to(file, &mut buffer, place(start)).unwrap_or(0);
            let records = buffer[..length].as_chunks::<RECORD>().0;
            for (row, record) in (start..self.rows).zip(records) {
                if let Some(size) = self.read(record, row)
                    && tell(row, record, size).is_break()
                {
                    return;
                }
            }
        }
    }

    /// `None` for a sample beyond all measure.
    fn record(&self, size: &SampleSize, row: u64) -> Option<[u8; RECORD]> {
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(&u32::try_from(size.tokens).ok()?.to_le_bytes());
        record[4..8].copy_from_slice(&u32::try_from(size.patches).ok()?.to_le_bytes());
        record[8..16].copy_from_slice(&size.cost.to_le_bytes());
        record[16..20].copy_from_slice(&u32::try_from(size.images).ok()?.to_le_bytes());
        let check = self.check(&record, row);
        record[20..].copy_from_slice(&check.to_le_bytes());
        Some(record)
    }

    fn read(&self, record: &[u8; RECORD], row: u64) -> Option<SampleSize> {
        let number = |at| u32::from_le_bytes(field(record, at));
        let size = SampleSize {
            tokens: number(0).into(),
            images: number(16).into(),
            patches: number(4).into(),
            cost: u64::from_le_bytes(field(record, 8)),
        };
        (size.tokens > 0 && number(20) == self.check(record, row)).then_some(size)
    }

    fn check(&self, record: &[u8; RECORD], row: u64) -> u32 {
        xxh3_64_with_seed(&record[..20], self.identity ^ row) as u32
    }
}

fn place(row: u64) -> u64 {
    row * RECORD as u64
}

fn field<const LENGTH: usize>(record: &[u8; RECORD], start: usize) -> [u8; LENGTH] {
    record[start..start + LENGTH].try_into().expect("the slice has that length")
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let both = options.read(true).write(true).create(true).truncate(false).open(path);
    // One that somebody else keeps is good for reading.
    both.or_else(|error| if path.exists() { File::open(path) } else { Err(error) })
}

/// A file that nobody else sees and that ends with this process.
fn unnamed() -> io::Result<File> {
    let folder = std::env::temp_dir();
    let number = std::process::id();
    for attempt in 0..100 {
        let path = folder.join(format!(".{number}.{attempt}.stoker-sizes"));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return fs::remove_file(path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Fills a buffer from a file that may end before.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], offset + length as u64)? {
            0 => break,
            count => length += count,
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: SampleSize = SampleSize { tokens: 900, images: 2, patches: 3000, cost: 1 << 40 };

    fn id(row: u64) -> SampleId {
        SampleId { dataset: 0, row }
    }

    fn sizes(folder: &Path, identity: &str) -> Sizes {
        let index = folder.join("train.jsonl.stoker-index");
        let dataset = Measurable { index: &index, rows: 200_000, identity: identity.to_owned() };
        Sizes::new(std::iter::once(dataset), "")
    }

    #[test]
    fn a_size_is_known_to_all_who_measure_alike_and_to_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let one = sizes(folder.path(), "a");
        assert_eq!(one.get(id(3)), None);
        one.put(id(3), &SIZE);
        one.put(id(150_000), &SampleSize { tokens: 100, ..SIZE });
        for other in [&one, &sizes(folder.path(), "a")] {
            assert_eq!(other.get(id(3)), Some(SIZE));
            assert_eq!([2, 4, 149_999, 199_999].map(|row| other.get(id(row))), [None; 4]);
            assert_eq!(other.tokens(0), (2, 1000));
        }
        assert_eq!(sizes(folder.path(), "b").get(id(3)), None);
    }

    #[test]
    fn records_of_another_host_are_kept_where_they_are_lacking() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [here, there] = [&folders[0], &folders[1]].map(|folder| sizes(folder.path(), "a"));
        assert_eq!(here.known_from(0, 0, 1 << 20), (Vec::new(), None), "nothing is known");
        let size = |row: u64| SampleSize { tokens: 1 + row, ..SIZE };
        let rows = [0, 3, 7, 50_000, 199_999];
        for row in rows {
            here.put(id(row), &size(row));
        }
        there.put(id(7), &SIZE);
        there.put(id(9), &size(9));
        let (mut next, mut parcels) = (Some(0), Vec::new());
        while let Some(row) = next {
            let (known, then) = here.known_from(0, row, 70);
            there.add_known(0, &known);
            parcels.push((row, known.len(), then));
            next = then;
        }
        assert_eq!(parcels, [(0, 64, Some(7)), (7, 64, Some(199_999)), (199_999, 32, None)]);
        for row in [0, 3, 9, 50_000, 199_999] {
            assert_eq!(there.get(id(row)), Some(size(row)));
        }
        assert_eq!(there.get(id(7)), Some(SIZE), "what is known stays");
        assert_eq!(there.tokens(0).0, 6);
        let other = sizes(folders[1].path(), "b");
        other.add_known(0, &here.known_from(0, 0, 1 << 20).0);
        assert_eq!(other.tokens(0).0, 0, "measured in another way");
    }

    #[test]
    fn a_record_that_is_damaged_or_moved_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let one = sizes(folder.path(), "a");
        one.put(id(3), &SIZE);
        let bytes = fs::read(one.path(0)).unwrap();
        for at in 72..96 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(one.path(0), &damaged).unwrap();
            assert_eq!(one.get(id(3)), None, "{at}");
        }
        fs::write(one.path(0), &bytes[24..]).unwrap();
        assert_eq!(one.get(id(2)), None, "of another row");
        fs::write(one.path(0), &bytes[..90]).unwrap();
        assert_eq!((one.get(id(3)), one.tokens(0)), (None, (0, 0)));
    }

    #[test]
    fn without_a_folder_to_write_to_sizes_are_known_to_this_process() {
        let gone = Path::new("/nonexistent/folder");
        let one = sizes(gone, "a");
        one.put(id(3), &SIZE);
        assert_eq!(one.get(id(3)), Some(SIZE));
        assert_eq!(sizes(gone, "a").get(id(3)), None);
    }
}
