//! Row groups of Parquet are large, and read as a whole while their index is built: what that takes
//! beside `engine.memory` is what is stated, whatever a file's pages hold or claim.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel};
use parquet::file::properties::WriterProperties;
use serde_json::json;
use stoker_engine::dataset::Dataset;
use stoker_engine::error::Error;
use stoker_engine::fetch::Fetcher;
use stoker_engine::recipe;
use stoker_engine::testing::encode_jpeg;

use crate::alone::{MIB, alone, status};

/// A file of one row group, whose images all stand in one page.
fn table(folder: &Path, images: &[Vec<u8>], codec: Compression) -> PathBuf {
    let (mut texts, mut bytes) = (StringBuilder::new(), BinaryBuilder::new());
    let turns = json!([
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": "That."},
    ]);
    for image in images {
        texts.append_value(turns.to_string());
        bytes.append_value(image);
    }
    let columns: [(&str, ArrayRef); 2] =
        [("image", Arc::new(bytes.finish())), ("messages", Arc::new(texts.finish()))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 30)
        .set_write_batch_size(images.len())
        .build();
    let path = folder.join("table.parquet");
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    let written = writer.close().unwrap();
    assert_eq!(written.row_groups().len(), 1);
    path
}

/// A photo, and behind its end as much as makes it that large: as images with appended data are.
fn photo(bytes: usize) -> Vec<u8> {
    let (width, height) = (200, 160);
    let mut photo =
        encode_jpeg(&stoker_engine::testing::photo(7, width, height), width, height, 85);
    photo.resize(bytes, 0);
    photo
}

/// Builds the index of a table, alone: a loader's tokenizer takes as much for a moment.
fn opened(source: &Path) -> Result<Dataset, Error> {
    let source = vec![source.display().to_string()];
    let config = recipe::Dataset { source, ..recipe::Dataset::default() };
    let fetcher = Fetcher::new(&recipe::Fetch::default(), Arc::default())?;
    Dataset::open(&config, &fetcher, &mut |_, _| {})
}

/// What building takes besides: windows of the file, buffers, threads.
const BESIDES: u64 = 40 * MIB;

/// Writes a row group of images of that many bytes in all, and builds its index.
fn row_group(bytes: u64, codec: Compression) {
    let folder = tempfile::tempdir().unwrap();
    let images = vec![photo(1 << 20); (bytes / MIB) as usize];
    let source = table(folder.path(), &images, codec);
    drop(images);
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let dataset = opened(&source).unwrap();
    assert_eq!(dataset.rows(), bytes / MIB);
    let grown = status("VmHWM").saturating_sub(before);
    println!("{bytes} bytes of {codec}: grown by {} MiB", grown / MIB);
    // The page as it is unpacked, and as it is stored: the zeros behind the photos are well packed.
    let stored = if matches!(codec, Compression::UNCOMPRESSED) { 0 } else { bytes / 4 };
    assert!(grown <= bytes + stored + BESIDES, "{} MiB", grown / MIB);
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn large_row_groups() {
    row_group(192 * MIB, Compression::UNCOMPRESSED);
    row_group(192 * MIB, Compression::SNAPPY);
}

#[test]
#[ignore = "half a minute: `cargo nextest run --release --run-ignored only -E 'test(row_group_of_a_gi)'`"]
fn a_row_group_of_a_gigabyte() {
    row_group(1000 * MIB, Compression::SNAPPY);
}

#[test]
fn large_row_groups_take_what_is_stated() {
    println!("{}", alone("tables::large_row_groups"));
}

/// Where the claim of the first page stands, of how large it is when it is unpacked: behind the
/// file's magic, the page's kind, and the field's own byte.
const CLAIM: usize = 4 + 3;

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn bombs() {
    let folder = tempfile::tempdir().unwrap();
    let gzip = Compression::GZIP(GzipLevel::default());
    let source = table(folder.path(), &vec![vec![0; 4 << 20]; 128], gzip);
    let mut bytes = std::fs::read(&source).unwrap();
    assert!(bytes.len() < 4 << 20, "half a gigabyte in {}", bytes.len());
    // A megabyte: the number twice, in as many groups of seven bits as there were.
    bytes[CLAIM..CLAIM + 5].copy_from_slice(&[0x80, 0x80, 0x80, 0x81, 0]);
    std::fs::write(&source, bytes).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let error = opened(&source).map(drop).unwrap_err();
    assert!(matches!(error, Error::Dataset(_)), "{error}");
    let words = error.to_string();
    let expected = "a page claims 1.0 MiB, and unpacks to more than that; ";
    assert!(words.starts_with(expected), "{words}");
    let grown = status("VmHWM").saturating_sub(before);
    println!("a bomb: grown by {} MiB", grown / MIB);
    assert!(grown <= BESIDES, "{} MiB", grown / MIB);
}

#[test]
fn a_page_that_unpacks_to_more_than_it_claims_takes_no_memory() {
    println!("{}", alone("tables::bombs"));
}
