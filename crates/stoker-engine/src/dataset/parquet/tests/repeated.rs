//! What a dictionary or a page repeats, and what nobody told of: limited by what it becomes.

use arrow_array::builder::{BinaryDictionaryBuilder, StringDictionaryBuilder, StructBuilder};
use arrow_array::types::Int32Type;
use arrow_schema::{DataType, Field};
use parquet::basic::Encoding;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter,
};

use super::*;

fn with_dictionaries() -> WriterProperties {
    WriterProperties::builder().set_dictionary_page_size_limit(64 << 20).build()
}

/// One row of messages without a turn.
fn no_turns() -> ArrayRef {
    let mut texts = StringBuilder::new();
    texts.append_value("[]");
    Arc::new(texts.finish())
}

/// A row that has one text so many times.
fn repeated(text: &str, times: usize) -> ArrayRef {
    let mut texts = ListBuilder::new(StringDictionaryBuilder::<Int32Type>::new());
    (0..times).for_each(|_| texts.values().append_value(text));
    texts.append(true);
    Arc::new(texts.finish())
}

/// A dictionary has a text once, and a row has it as often as it likes.
#[test]
fn a_row_that_repeats_a_text_is_cut_behind_what_a_sample_may_have() {
    const MOST: usize = 100_000;
    let text = "é".repeat(8 << 10);
    for (name, column) in [
        ("tools", repeated(&text, 4096)),
        // References, and one text that is too long by itself.
        ("images", repeated(&text, 4096)),
        ("tools", repeated(&"é".repeat(MIB), 1)),
    ] {
        let file = written_as(vec![("messages", no_turns()), (name, column)], with_dictionaries());
        let (stop, row) = rows_within(&file, 1 << 30, MOST as u64, |_| None);
        assert!(stop.is_none(), "the row alone is refused, and not {stop:?}");
        assert!((MOST + 1..MOST + 20_000).contains(&row.len()), "{name}: {}", row.len());
        let (_, whole) = rows_within(&file, 1 << 30, 1 << 30, |_| None);
        assert!(whole.len() > 20 * MOST, "{name}: it is {} bytes", whole.len());
    }
}

/// Names of fields stand in the footer once, and in each item of a row.
#[test]
fn a_row_that_repeats_a_name_is_cut_behind_what_a_sample_may_have() {
    const MOST: usize = 100_000;
    let name = Field::new("n".repeat(10_000), DataType::Int8, false);
    let mut items = ListBuilder::new(StructBuilder::from_fields(vec![name], 5000));
    for _ in 0..5000 {
        items.values().field_builder::<Int8Builder>(0).unwrap().append_value(7);
        items.values().append(true);
    }
    items.append(true);
    let columns = vec![("messages", no_turns()), ("tools", Arc::new(items.finish()) as ArrayRef)];
    let file = written_as(columns, with_dictionaries());
    let (stop, row) = rows_within(&file, 1 << 30, MOST as u64, |_| None);
    assert!(stop.is_none(), "the row alone is refused, and not {stop:?}");
    assert!((MOST + 1..MOST + 40_000).contains(&row.len()), "{}", row.len());
}

/// What is copied is limited before it is written, and not after a row of any size.
#[test]
fn a_row_that_repeats_an_image_is_never_written_beyond_the_limit() {
    let image = vec![7; MIB];
    let mut images = ListBuilder::new(BinaryDictionaryBuilder::<Int32Type>::new());
    (0..200).for_each(|_| images.values().append_value(&image));
    images.append(true);
    let columns = vec![("messages", no_turns()), ("images", Arc::new(images.finish()) as ArrayRef)];
    let file = written_as(columns, with_dictionaries());
    assert!(file.len() < 2 * MIB, "it is there once");
    let limit = 8 * MIB;
    let (stop, copied) = rows_within(&file, limit as u64, 1 << 20, |_| None);
    let Some(Stop::File { reason, .. }) = stop else { panic!("it is refused, and not {stop:?}") };
    assert_eq!(reason, "the shards unpack to more than 8.0 MiB");
    assert!(copied.len() <= limit, "{}", copied.len());
}

/// The file with another claim of how much its columns are when they are unpacked.
fn telling(file: &[u8], told: i64) -> Vec<u8> {
    let end = file.len() - 8;
    let footer = u32::from_le_bytes(file[end..end + 4].try_into().unwrap()) as usize;
    let metadata = ParquetMetaDataReader::decode_metadata(&file[end - footer..end]).unwrap();
    let mut builder = ParquetMetaDataBuilder::new(metadata.file_metadata().clone());
    for group in metadata.row_groups() {
        let less = |column: &ColumnChunkMetaData| {
            column.clone().into_builder().set_total_uncompressed_size(told).build().unwrap()
        };
        let columns = group.columns().iter().map(less).collect();
        let group = group.clone().into_builder().set_column_metadata(columns).build().unwrap();
        builder = builder.add_row_group(group);
    }
    let mut bytes = file[..end - footer].to_vec();
    ParquetMetaDataWriter::new(&mut bytes, &builder.build()).finish().unwrap();
    bytes
}

/// How many rows are read at once follows from what is told; so all pages of all columns are held
/// against it.
#[test]
fn pages_that_are_together_more_than_their_columns_are_told_to_have_are_refused() {
    let codec = Compression::ZSTD(ZstdLevel::default());
    let pages = WriterProperties::builder()
        .set_compression(codec)
        .set_dictionary_enabled(false)
        .set_write_batch_size(1)
        .set_data_page_row_count_limit(1)
        .build();
    let texts = |mib: usize| {
        let mut texts = StringBuilder::new();
        (0..3).for_each(|_| texts.append_value(" ".repeat(mib * MIB)));
        Arc::new(texts.finish()) as ArrayRef
    };
    let one = written_as(vec![("messages", texts(25))], pages.clone());
    let two = written_as(vec![("messages", texts(15)), ("tools", texts(15))], pages.clone());
    let little = written_as(vec![("messages", texts(20))], pages);
    for file in [&one, &two, &little] {
        assert!(rows(file).unwrap().len() > 60 * MIB);
    }
    assert!(rows(&telling(&little, 1)).is_ok(), "some writers do not count all");
    for (file, all) in [(one, "75.0 MiB"), (two, "30.0 MiB")] {
        let expected = format!(
            "a page claims the last of {all} of a column when it is unpacked, and there are 1 B of it; "
        );
        let refused = refusal(&telling(&file, 1));
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

/// `DELTA_BYTE_ARRAY` has of each text only what is not at the beginning of the one before.
#[test]
fn texts_that_repeat_each_other_are_limited_by_what_they_become() {
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let codecs = [Compression::UNCOMPRESSED, Compression::GZIP(GzipLevel::default())];
    for (version, codec) in versions.into_iter().zip(codecs) {
        let file = |texts: ArrayRef| {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_compression(codec)
                .set_dictionary_enabled(false)
                .set_encoding(Encoding::DELTA_BYTE_ARRAY)
                .build();
            written_as(vec![("messages", no_turns()), ("tools", texts)], properties)
        };
        let text = "a".repeat(MIB);
        let sound = file(repeated(&text, 20));
        assert!(sound.len() < 3 * MIB, "it is there once");
        assert!(rows(&sound).unwrap().len() > 20 * MIB);
        let refused = refusal(&file(repeated(&text, 1100)));
        let expected = "rows that are read at once repeat more than 1.0 GiB of each other; write the \
                        file anew without DELTA_BYTE_ARRAY";
        assert_eq!(refused, expected);
    }
}
