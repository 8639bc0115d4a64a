//! Pages that claim too much are refused before anything is reserved for them; what they claim is read
//! as the library reads it.

mod repeated;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int8Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::column::page::Page as Read;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::build::{DAMAGED, Files, Limits, Stop, build};
use super::page::{Chunk, LARGEST, MOST_VALUES, Page, Refused};
use crate::dataset::budget::{Budget, Unpacked};
use crate::dataset::content::MOST_IMAGES;
use crate::dataset::json::MOST_VALUES as MOST_OF_A_ROW;
use crate::error::{Error, FetchError, FetchErrorKind};
use crate::recipe::Fields;

/// A file of these columns: one row group.
fn written(columns: Vec<(&str, ArrayRef)>, codec: Compression, version: WriterVersion) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_writer_version(version)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(64 << 20)
        .build();
    written_as(columns, properties)
}

fn written_as(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// A row whose text takes that many bytes.
fn long(bytes: usize, codec: Compression, version: WriterVersion) -> Vec<u8> {
    let mut texts = StringBuilder::new();
    texts.append_value(" ".repeat(bytes));
    written(vec![("messages", Arc::new(texts.finish()))], codec, version)
}

/// Builds the index of a file; the texts of its rows.
fn rows(bytes: &[u8]) -> Result<Vec<u8>, Stop> {
    rows_from(bytes, |_| None)
}

fn rows_from(
    bytes: &[u8],
    fails: impl Fn(u64) -> Option<Error> + Send + Sync + 'static,
) -> Result<Vec<u8>, Stop> {
    let (stop, text) = rows_within(bytes, 1 << 30, 64 << 20, fails);
    stop.map_or(Ok(text), Err)
}

/// The same within limits on what is copied, and on the text of a row.
fn rows_within(
    bytes: &[u8],
    most_copied: u64,
    max_text: u64,
    fails: impl Fn(u64) -> Option<Error> + Send + Sync + 'static,
) -> (Option<Stop>, Vec<u8>) {
    let content = Bytes::copy_from_slice(bytes);
    let ranges = Box::new(move |range: std::ops::Range<u64>| match fails(range.start) {
        Some(error) => Err(error),
        None => Ok(content.slice(range.start as usize..range.end as usize)),
    });
    let [entries, out] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let limits = Limits {
        budget: &Budget::default(),
        unpacked: &Unpacked::default(),
        most_copied,
        max_text,
    };
    let files = Files { entries: &entries, rows: &out };
    let stop = build(ranges, bytes.len() as u64, &Fields::default(), &files, &limits).err();
    let mut text = Vec::new();
    let mut out = &out;
    std::io::Seek::rewind(&mut out).unwrap();
    std::io::Read::read_to_end(&mut out, &mut text).unwrap();
    (stop, text)
}

fn refusal(bytes: &[u8]) -> String {
    match rows(bytes) {
        Err(Stop::File { reason, hint }) => format!("{reason}; {hint}"),
        other => panic!("it is refused, and not {other:?}"),
    }
}

/// Where the first page's header begins.
const HEADER: usize = 4;

/// The file with another claim of how large its first page is when it is unpacked: as long as the
/// one that is there.
fn claiming(mut bytes: Vec<u8>, size: u32) -> Vec<u8> {
    // The kind of the page, in two bytes, and the field's own byte.
    let begin = HEADER + 3;
    let length = 1 + bytes[begin..].iter().position(|byte| byte & 0x80 == 0).unwrap();
    let mut number = u64::from(size) * 2;
    for at in 0..length {
        let more = if at + 1 < length { 0x80 } else { 0 };
        bytes[begin + at] = (number & 0x7F) as u8 | more;
        number >>= 7;
    }
    assert_eq!(number, 0, "the claim is as long as the one before");
    bytes
}

const MIB: usize = 1 << 20;

#[test]
fn pages_that_unpack_to_more_than_they_claim_are_never_unpacked() {
    let codecs = [
        (Compression::GZIP(GzipLevel::default()), true),
        (Compression::BROTLI(BrotliLevel::default()), true),
        // These stop at the claim by themselves.
        (Compression::SNAPPY, false),
        (Compression::ZSTD(ZstdLevel::default()), false),
        (Compression::LZ4_RAW, false),
    ];
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for (codec, is_ours) in codecs {
            let good = long(3 * MIB, codec, version);
            assert!(rows(&good).unwrap().len() > 3 * MIB, "{codec}");
            let refused = refusal(&claiming(good, 1000));
            let expected =
                format!("a page claims 1000 B, and unpacks to more than that; {DAMAGED}");
            assert!(!is_ours || refused == expected, "{codec}: {refused}");
            assert!(refused.ends_with(DAMAGED), "{codec}: {refused}");
        }
    }
}

/// Frames of LZ4, which the library takes for pages of its other form.
#[test]
fn frames_of_lz4_are_bombs_too() {
    let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
    std::io::Write::write_all(&mut frame, &vec![0; MIB]).unwrap();
    let frame = frame.finish().unwrap();
    let page = |unpacked: i32| Page::read(&header(0, unpacked, frame.len() as i32, 1)).unwrap();
    assert!(!page(MIB as i32).is_bomb(&frame, Compression::LZ4));
    assert!(page(MIB as i32 - 1).is_bomb(&frame, Compression::LZ4));
    assert!(!page(MIB as i32 - 1).is_bomb(&frame[..100], Compression::LZ4), "it ends before");
}

#[test]
fn a_page_that_claims_more_than_its_column_is_refused() {
    let good = long(3 * MIB, Compression::SNAPPY, WriterVersion::PARQUET_1_0);
    let refused = refusal(&claiming(good, 100 << 20));
    let expected = "a page claims 100.0 MiB when it is unpacked, and there are 3.0 MiB of its whole \
                    column; ";
    assert!(refused.starts_with(expected), "{refused}");
}

/// A header as Thrift has it.
fn header(kind: i32, unpacked: i32, packed: i32, values: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let int = |bytes: &mut Vec<u8>, field: u8, number: i32| {
        bytes.push(field << 4 | 5);
        let mut number = ((number << 1) ^ (number >> 31)) as u32;
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    };
    for number in [kind, unpacked, packed] {
        int(&mut bytes, 1, number);
    }
    bytes.push(if kind == 2 { 0x4C } else { 0x2C });
    int(&mut bytes, 1, values);
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn claims_beyond_the_limits_are_refused_by_name() {
    let chunk = |unpacked| Chunk {
        begin: 4,
        end: 100,
        unpacked,
        codec: Compression::SNAPPY,
        levels: [false; 2],
    };
    let refused = |kind, unpacked, packed, values| {
        let page = Page::read(&header(kind, unpacked, packed, values)).unwrap();
        page.refused(&chunk(u64::MAX)).map(|why| why.reason())
    };
    let (largest, most) = (LARGEST as i32, MOST_VALUES as i32);
    assert_eq!(refused(0, largest, largest, most), None);
    let large = "a page claims 2.0 GiB, and up to 1.0 GiB are read";
    assert_eq!(refused(0, i32::MAX, 10, 1).as_deref(), Some(large));
    assert_eq!(refused(0, 10, i32::MAX, 1).as_deref(), Some(large));
    let values = "a page claims 67108865 values, and there are 67108864 at most";
    assert_eq!(refused(0, 10, 10, most + 1).as_deref(), Some(values));
    // A dictionary's values are there, so each takes a byte.
    let values = "a page claims 2147483647 values, and there are 10 at most";
    assert_eq!(refused(2, 10, 10, i32::MAX).as_deref(), Some(values));
    // What is less than nothing is the library's to refuse, and nothing is reserved for it.
    assert_eq!(refused(0, -1, -1, -1), None);
    let page = Page::read(&header(0, 1000, 10, 1)).unwrap();
    assert_eq!(page.refused(&chunk(10)), None, "some writers do not count all");
    let page = Page::read(&header(0, 65 << 20, 10, 1)).unwrap();
    assert!(matches!(page.refused(&chunk(10)), Some(Refused::Claim { .. })));
}

/// The library reads what it knows by its number, so what is stated to be something else would be one
/// thing there and another here: whether a page is packed, and how long its header is.
#[test]
fn headers_with_fields_of_other_kinds_are_not_read() {
    // To the library a checksum and a page of the first form; else a page that is not packed.
    let both =
        b"\x15\0\x15\x80\x7D\x15\x14\x11\x4C\x72\x01\x08\0\x0C\x0A\x15\x02\x15\0\x15\0\x15\0\0\0";
    assert_eq!(Page::read(both), None);
    // All that are known, of all forms.
    let v1 = b"\x15\0\x15\x02\x15\x02\x15\0\x1C\x15\x02\x15\0\x15\0\x15\0\0\x1C\0\0".as_slice();
    let dictionary = b"\x15\x04\x15\x02\x15\x02\x4C\x15\x02\x15\0\x11\0\0";
    let v2 = b"\x15\x06\x15\x02\x15\x02\x5C\x15\x02\x15\0\x15\x02\x15\0\x15\0\x15\0\x12\0\0";
    for header in [v1, dictionary, v2] {
        assert_eq!(Page::read(header).unwrap().head, header.len() as u64);
        let fields = |byte: &u8| [0x15, 0x1C, 0x4C, 0x5C, 0x11, 0x12].contains(byte);
        for (at, byte) in header.iter().enumerate().filter(|(_, byte)| fields(byte)) {
            for kind in (1..16).filter(|kind| kind ^ byte & 0xF != 0) {
                let is_truth = byte & 0xF < 3 && kind < 3;
                let mut other = header.to_vec();
                other[at] = byte & 0xF0 | kind;
                assert_eq!(Page::read(&other).is_some(), is_truth, "{kind} at {at}");
            }
        }
    }
}

/// Against the library, page by page, over all that pyarrow wrote.
#[test]
fn headers_mean_what_the_library_reads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/parquet");
    let mut pages = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "parquet") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let reader = SerializedFileReader::new(Bytes::from(bytes.clone())).unwrap();
        for (number, group) in reader.metadata().row_groups().iter().enumerate() {
            let group_reader = reader.get_row_group(number).unwrap();
            for (leaf, column) in group.columns().iter().enumerate() {
                let (mut at, length) = column.byte_range();
                let end = at + length;
                for read in group_reader.get_column_page_reader(leaf).unwrap() {
                    let read = read.unwrap();
                    let page = Page::read(&bytes[at as usize..]).unwrap();
                    let body = (at + page.head) as usize;
                    at = body as u64 + page.packed();
                    let is_dictionary = matches!(read, Read::DictionaryPage { .. });
                    let values = if is_dictionary { 0 } else { u64::from(read.num_values()) };
                    assert_eq!(page.data_values(), values, "{}", path.display());
                    let packed = &bytes[body..at as usize];
                    assert!(!page.is_bomb(packed, column.compression()), "{}", path.display());
                    let chunk = Chunk {
                        begin: 0,
                        end,
                        unpacked: 0,
                        codec: column.compression(),
                        levels: [false; 2],
                    };
                    assert_eq!(page.refused(&chunk), None);
                    pages += 1;
                }
                assert_eq!(at, end, "{}", path.display());
            }
        }
    }
    assert!(pages > 100, "{pages}");
}

/// What the store says is not taken for damage.
#[test]
fn a_store_that_fails_in_the_middle_is_told_as_what_it_is() {
    let good = long(9 * MIB, Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0);
    let failure = || {
        Error::Fetch(Box::new(FetchError {
            kind: FetchErrorKind::Transient,
            range: None,
            attempts: 8,
            status: Some(503),
            reason: "the store is busy".into(),
            hint: None,
            request_id: None,
            uri: "s3://bucket/data/x.parquet".into(),
        }))
    };
    for from in [4, 5] {
        let failing = move |start: u64| (start < 1000 && start >= from).then(failure);
        match rows_from(&good, failing) {
            Err(Stop::Read(error)) => assert_eq!(error, failure()),
            other => panic!("the store failed from {from} on, and not {other:?}"),
        }
    }
}

/// A row may claim many values in few bytes: what it becomes is refused as a sample, and small.
#[test]
fn a_row_of_millions_of_values_is_cut_behind_what_a_sample_may_have() {
    let count = 3_000_000;
    let mut numbers = ListBuilder::new(Int8Builder::new());
    (0..count).for_each(|_| numbers.values().append_value(7));
    numbers.append(true);
    let mut texts = StringBuilder::new();
    texts.append_value("[]");
    let columns: Vec<(&str, ArrayRef)> =
        vec![("messages", Arc::new(texts.finish())), ("tools", Arc::new(numbers.finish()))];
    let file =
        written(columns, Compression::ZSTD(ZstdLevel::default()), WriterVersion::PARQUET_1_0);
    let text = String::from_utf8(rows(&file).unwrap()).unwrap();
    let values = text.matches('7').count();
    // The list and the messages are values, too.
    assert_eq!(values + 2, MOST_OF_A_ROW + 1);
}

#[test]
fn a_row_of_millions_of_images_is_cut_behind_what_a_sample_may_have() {
    let mut images = ListBuilder::new(BinaryBuilder::new());
    (0..500_000).for_each(|_| images.values().append_value(b"i"));
    images.append(true);
    let mut texts = StringBuilder::new();
    texts.append_value("[]");
    let columns: Vec<(&str, ArrayRef)> =
        vec![("messages", Arc::new(texts.finish())), ("images", Arc::new(images.finish()))];
    let file = written(columns, Compression::SNAPPY, WriterVersion::PARQUET_1_0);
    let text = String::from_utf8(rows(&file).unwrap()).unwrap();
    assert_eq!(text.rsplit('}').next().unwrap(), "i".repeat(MOST_IMAGES + 1));
}
