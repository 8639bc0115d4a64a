//! Builds the index of a Parquet shard and takes its rows out: one pass over the columns that are
//! wanted, a few rows at a time.
//!
//! A footer is written by whoever wrote the file, so its claims are checked before anything is
//! reserved or read on its word, and a reader that panics over a damaged file is caught. Bytes and
//! text are read as views: in any other form a batch of them ends at 2 GiB (arrow-rs issue 7973).
//!
//! The fingerprint is a hash of the footer: it knows the sizes, places and statistics of all columns,
//! so it changes when the file is written anew, and not when it is moved.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use xxhash_rust::xxh3::Xxh3;

use super::page::{Chunk, LARGEST, MOST_VALUES};
use super::rows::row;
use super::schema::{Column, Unsuitable, choose, with_views};
use super::shard::Shard;
use crate::dataset::budget::{Budget, Unpacked};
use crate::dataset::entry::{Entry, Part};
use crate::dataset::{Ranges, entries};
use crate::error::{Bytes as Size, Error};
use crate::recipe::Fields;

const BUFFER: usize = 256 << 10;
/// Largest footer that is believed.
const LARGEST_FOOTER: u64 = 64 << 20;
/// Bytes of rows that are decoded at once, and most rows.
const BATCH: u64 = 16 << 20;
const MOST_ROWS: u64 = 1024;
/// Changes with the definition of the fingerprint.
const FINGERPRINT_SEED: u64 = 3;

/// Why a shard can't be read.
#[derive(Debug)]
pub(in crate::dataset) enum Stop {
    /// The file is damaged, or not what is read.
    File { reason: String, hint: &'static str },
    /// Its bytes can't be had.
    Read(Error),
    /// What was found can't be stored.
    Write(io::Error),
}

pub(super) const DAMAGED: &str = "the file is cut off or damaged: copy it again, or write it anew";
const MORE_COPIED: &str =
    "raise dataset.max-copied if they are meant to, and there is room where the index lies";
const FIELDS: &str = "dataset.fields says which columns are read under other names";

/// What was built.
pub(in crate::dataset) struct Built {
    pub(in crate::dataset) rows: u64,
    pub(in crate::dataset) fingerprint: u64,
    pub(in crate::dataset) body: u64,
}

/// How much there may be.
pub(in crate::dataset) struct Limits<'a> {
    /// In memory.
    pub(in crate::dataset) budget: &'a Budget,
    /// Bytes of rows that were taken out so far, of all shards together.
    pub(in crate::dataset) unpacked: &'a Unpacked,
    /// How many there may be.
    pub(in crate::dataset) most_copied: u64,
    /// Bytes of text of a row; one that has more is refused when it is read.
    pub(in crate::dataset) max_text: u64,
}

/// Where things are written.
pub(in crate::dataset) struct Files<'a> {
    pub(in crate::dataset) entries: &'a File,
    pub(in crate::dataset) rows: &'a File,
}

/// Reads a file of `size` bytes: its entries, and its rows.
pub(in crate::dataset) fn build(
    ranges: Ranges,
    size: u64,
    fields: &Fields,
    files: &Files<'_>,
    limits: &Limits<'_>,
) -> Result<Built, Stop> {
    let footer = footer(&ranges, size)?;
    let metadata = guard(|| {
        let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
        Ok(Arc::new(metadata))
    })?;
    let table = guard(|| Table::of(metadata, fields))??;
    table.check(size)?;
    let mut writer = Writer {
        entries: entries::Writer::new(files.entries).map_err(Stop::Write)?,
        rows: BufWriter::with_capacity(BUFFER, files.rows),
        end: 0,
        so_far: limits.unpacked,
        most: limits.most_copied,
    };
    let shard = Shard::new(ranges, size, table.chunks());
    for group in 0..table.metadata.metadata().num_row_groups() {
        let _held = limits.budget.take(table.memory(group));
        table.take_out(&shard, group, limits.max_text, &mut writer)?;
    }
    let rows = writer.entries.count();
    let told = table.metadata.metadata().file_metadata().num_rows();
    if u64::try_from(told) != Ok(rows) {
        return Err(damaged(format!("the footer tells of {told} rows, and there are {rows}")));
    }
    let mut hash = Xxh3::with_seed(FINGERPRINT_SEED);
    hash.update(&footer);
    table.columns.iter().for_each(|column| hash.update(column.name.as_bytes()));
    writer.rows.flush().map_err(Stop::Write)?;
    let body = writer.entries.finish().map_err(Stop::Write)?;
    Ok(Built { rows, fingerprint: hash.digest(), body })
}

fn too_large(limit: u64) -> Stop {
    let reason = format!("the shards unpack to more than {}", Size(limit));
    Stop::File { reason, hint: MORE_COPIED }
}

fn damaged(reason: impl Into<String>) -> Stop {
    Stop::File { reason: reason.into(), hint: DAMAGED }
}

/// The footer's bytes, if they are there.
fn footer(ranges: &Ranges, size: u64) -> Result<bytes::Bytes, Stop> {
    // The magic stands at both ends, and the length of the footer before the second one.
    const ENDS: u64 = 12;
    if size < ENDS {
        return Err(damaged(format!("the file has only {size} bytes")));
    }
    let end = ranges(size - 8..size).map_err(Stop::Read)?;
    match &end[4..] {
        b"PAR1" => {}
        b"PARE" => {
            let reason = "the footer is encrypted".to_owned();
            return Err(Stop::File { reason, hint: "write the file without encryption" });
        }
        _ => return Err(damaged("the file does not end as a Parquet file does")),
    }
    let length = u64::from(u32::from_le_bytes(end[..4].try_into().expect("it has 4 bytes")));
    if length > LARGEST_FOOTER {
        let limit = Size(LARGEST_FOOTER);
        let reason = format!("the footer claims {}, and up to {limit} are read", Size(length));
        return Err(Stop::File { reason, hint: "write files of fewer row groups and columns" });
    }
    if length > size - ENDS {
        return Err(damaged(format!("the footer claims {length} bytes, more than there are")));
    }
    ranges(size - 8 - length..size - 8).map_err(Stop::Read)
}

/// Runs what reads a file; a panic is one more way to say that the file is damaged.
fn guard<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Stop> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(unread(&error)),
        Err(_) => Err(damaged("its reader panicked")),
    }
}

fn unread(error: &dyn std::fmt::Display) -> Stop {
    damaged(format!("the file can't be read: {}", super::super::quoted(&error.to_string())))
}

/// A file whose footer was read.
struct Table {
    metadata: ArrowReaderMetadata,
    columns: Vec<Column>,
    mask: ProjectionMask,
}

impl Table {
    fn of(
        metadata: Arc<ParquetMetaData>,
        fields: &Fields,
    ) -> Result<Result<Self, Stop>, ParquetError> {
        let descriptor = metadata.file_metadata().schema_descr_ptr();
        // Without the schema that Arrow may have left in the file: only the plain types count.
        let schema = parquet_to_arrow_schema(&descriptor, None)?;
        let columns = match choose(&schema, fields) {
            Ok(columns) => columns,
            Err(Unsuitable(reason)) => return Ok(Err(Stop::File { reason, hint: FIELDS })),
        };
        let mask = ProjectionMask::roots(&descriptor, columns.iter().map(|column| column.index));
        let options = ArrowReaderOptions::new().with_schema(Arc::new(with_views(&schema)));
        let metadata = ArrowReaderMetadata::try_new(metadata, options)?;
        Ok(Ok(Self { metadata, columns, mask }))
    }

    /// What the footer tells of the columns of a row group that are wanted.
    fn wanted<'a>(
        &'a self,
        group: &'a RowGroupMetaData,
    ) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
        let columns = group.columns().iter().enumerate();
        columns.filter_map(|(leaf, column)| self.mask.leaf_included(leaf).then_some(column))
    }

    /// Refuses what lies outside of the file.
    fn check(&self, size: u64) -> Result<(), Stop> {
        let rows = self.metadata.metadata().file_metadata().num_rows();
        if u64::try_from(rows).is_ok_and(|rows| rows > entries::MOST) {
            let reason = format!("the file has {rows} rows, and up to {} are read", entries::MOST);
            return Err(Stop::File { reason, hint: "write several files" });
        }
        let mut told = 0_i64;
        for (number, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            told = told.saturating_add(group.num_rows().max(0));
            let wrong = |what: &str| Err(damaged(format!("row group {number} {what}")));
            if group.columns().iter().any(|column| column.file_path().is_some()) {
                return wrong("lies in another file");
            }
            if group.num_rows() < 0 {
                return wrong("has a negative number of rows");
            }
            for column in self.wanted(group) {
                let (begin, length) = place(column);
                let end = begin.checked_add(length).filter(|_| begin >= 4 && length >= 0);
                if end.is_none_or(|end| end as u64 > size) {
                    return wrong("lies beyond the end of the file");
                }
                let values = column.num_values();
                if values > MOST_VALUES as i64 {
                    let reason = format!(
                        "row group {number} has {values} values of a column, and up to {MOST_VALUES} \
                         are read"
                    );
                    return Err(Stop::File { reason, hint: "write smaller row groups" });
                }
            }
        }
        if told != rows {
            let reason = format!("the footer tells of {rows} rows, and its groups of {told}");
            return Err(damaged(reason));
        }
        Ok(())
    }

    /// Where all wanted chunks lie; they were checked.
    fn chunks(&self) -> Vec<Chunk> {
        let groups = self.metadata.metadata().row_groups().iter();
        let columns = groups.flat_map(|group| self.wanted(group));
        let chunk = |column: &ColumnChunkMetaData| {
            let ((begin, length), levels) = (place(column), column.column_descr());
            Chunk {
                begin: begin as u64,
                end: (begin + length) as u64,
                unpacked: u64::try_from(column.uncompressed_size()).unwrap_or(0),
                codec: column.compression(),
                levels: [levels.max_rep_level(), levels.max_def_level()].map(|most| most > 0),
            }
        };
        columns.map(chunk).collect()
    }

    /// Most bytes that reading a row group takes: every column in one page, and the largest page
    /// before it is unpacked too. Brotli's reader keeps a second copy of what it unpacks.
    fn memory(&self, number: usize) -> u64 {
        let group = self.metadata.metadata().row_group(number);
        let page = |size: i64| u64::try_from(size).unwrap_or(0).min(LARGEST);
        let (all, largest) = self.wanted(group).fold((0_u64, 0), |(all, largest), column| {
            let copies = if matches!(column.compression(), Compression::BROTLI(_)) { 2 } else { 1 };
            let unpacked = page(column.uncompressed_size()) * copies;
            (all.saturating_add(unpacked), largest.max(page(column.compressed_size())))
        });
        all.saturating_add(largest)
    }

    /// Writes the rows of a row group.
    fn take_out(
        &self,
        shard: &Shard,
        number: usize,
        max_text: u64,
        writer: &mut Writer<'_>,
    ) -> Result<(), Stop> {
        let group = self.metadata.metadata().row_group(number);
        let rows = group.num_rows() as u64;
        if rows == 0 {
            return Ok(());
        }
        let sizes = self.wanted(group).map(|column| column.uncompressed_size().max(0) as u64);
        let bytes = sizes.fold(0, u64::saturating_add);
        let at_once = (BATCH / (bytes / rows).max(1)).clamp(1, MOST_ROWS);
        // Where it was not the reader who ended it, its words are not the reason.
        let why = |stop| shard.stopped().unwrap_or(stop);
        let mut batches = guard(|| {
            ParquetRecordBatchReaderBuilder::new_with_metadata(shard.clone(), self.metadata.clone())
                .with_row_groups(vec![number])
                .with_projection(self.mask.clone())
                .with_batch_size(at_once as usize)
                .build()
        })
        .map_err(why)?;
        loop {
            shard.begin_batch();
            let next = guard(|| batches.next().transpose().map_err(ParquetError::from));
            let Some(batch) = next.map_err(why)? else { break };
            for number in 0..batch.num_rows() {
                let row = guard(|| Ok(row(&batch, &self.columns, number, max_text)))?;
                writer.write(&row)?;
            }
        }
        shard.forget();
        Ok(())
    }
}

/// Where a column of a row group begins, and how long it is, as the footer has it.
fn place(column: &ColumnChunkMetaData) -> (i64, i64) {
    let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    (begin.min(column.data_page_offset()), column.compressed_size())
}

/// What is written.
struct Writer<'a> {
    entries: entries::Writer<'a>,
    rows: BufWriter<&'a File>,
    end: u64,
    so_far: &'a Unpacked,
    most: u64,
}

impl Writer<'_> {
    fn write(&mut self, row: &super::rows::Row<'_>) -> Result<(), Stop> {
        let json = serde_json::to_vec(&row.object).map_err(|error| Stop::Write(error.into()))?;
        let mut parts = vec![self.part("json", &json)?];
        for image in &row.images {
            parts.push(self.part(&image.name, image.bytes)?);
        }
        let place = self.entries.count();
        let entry = Entry { key: String::new(), place, twice: None, parts };
        self.entries.write(&entry.to_bytes()).map_err(Stop::Write)
    }

    fn part(&mut self, name: &str, bytes: &[u8]) -> Result<Part, Stop> {
        let part = Part { name: name.to_owned(), begin: self.end, size: bytes.len() as u64 };
        // Before each part: a row may be a thousand times what its pages are.
        if !self.so_far.add(part.size, self.most) {
            return Err(too_large(self.most));
        }
        self.rows.write_all(bytes).map_err(Stop::Write)?;
        self.end = part.end();
        Ok(part)
    }
}
