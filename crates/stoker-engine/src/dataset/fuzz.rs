//! What fuzzing calls of this room: its parsers, each over bytes that anybody may have written.
//!
//! What they say is not looked at, but that they say it: no panic, no endless loop, no memory that
//! the bytes do not account for. What was built is read again, as a run would read it.

use std::cell::RefCell;
use std::fs::{File, OpenOptions, remove_file};
use std::io::{Cursor, Read, Seek, Write};
use std::sync::Arc;

use bytes::Bytes;

use super::budget::{Budget, Unpacked};
use super::chat::{LINE, Record, sample};
use super::entry::Entry;
use super::mds::Columns;
use super::media::Media;
use super::packing::{Forward, begin_text, mistake, unpack};
use super::sidecar::{HEADER, Row};
use super::stretch::{Rules, locate, record};
use super::{Ranges, Store, energon, entries, lines, mds, parquet, tar};
use crate::error::{Error, FetchError, FetchErrorKind, Result};
use crate::fetch::ObjectInfo;
use crate::recipe::{Fields, Format};
use crate::sample::{Location, SampleId, Scheme};

/// Longest text that is read here.
const MAX_TEXT: u64 = 1 << 16;
/// Most bytes that are copied here.
const MAX_COPIED: u64 = 8 << 20;

/// A row of JSON lines.
pub fn line(bytes: &[u8]) {
    for shard in ["s3://bucket/data/x.jsonl", "/data/x.jsonl", "https://host.example/d/x.jsonl"] {
        let shard = Location::parse(shard).expect("it is an address");
        let media = Media::new(&shard, None, true);
        let Ok(record) = Record::from_json(bytes, LINE) else { return };
        said(record, &Fields::default(), &media);
    }
    let fields =
        Fields { question: Some("q".into()), answer: Some("a".into()), ..Fields::default() };
    if let Ok(record) = Record::from_json(bytes, LINE) {
        let shard = Location::parse("/data/x.jsonl").expect("it is an address");
        said(record, &fields, &Media::new(&shard, None, true));
    }
}

fn said(record: Record, fields: &Fields, media: &Media) {
    let id = SampleId { dataset: 0, row: 0 };
    if let Ok(sample) = sample(id, record, fields, media, "") {
        assert!(sample.images.len() <= 1024, "images of a sample are limited");
    }
}

/// An address, and a reference in the data.
pub fn address(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(location) = Location::parse(text) {
        let folder = location.folder();
        drop(folder.join(text));
        drop(location.to_string());
    }
    for shard in ["s3://bucket/data/x.jsonl", "/data/x.jsonl", "http://host.example/d/x.jsonl"] {
        let shard = Location::parse(shard).expect("it is an address");
        let Ok(image) = Media::new(&shard, None, true).resolve(text) else { continue };
        let crate::sample::ImageRef::Stored(extent) = image else { continue };
        let Location { scheme, key, .. } = &*extent.object;
        // What no data may do, whatever they look like.
        let is_inside = key.starts_with("/data/") && !key.split('/').any(|part| part == "..");
        assert!(*scheme != Scheme::File || is_inside, "{text} is {key}");
        assert!(*scheme != Scheme::File || shard.scheme == Scheme::File, "{text} is local");
    }
}

/// Text that should be JSON lines, and its index.
pub fn text(bytes: &[u8]) {
    let Ok(mut unpacked) = unpack(Bounded::over(bytes)) else { return };
    let Ok(offset) = begin_text(&mut unpacked) else { return };
    with_files(|index, copied| {
        let Ok((totals, _)) = lines::build(unpacked, offset, MAX_TEXT, index, Some(copied)) else {
            return;
        };
        for row in [0, totals.rows / 2, totals.rows.wrapping_sub(1), totals.rows] {
            if let Ok(row) = Row::read(index, row) {
                assert!(row.offset <= MAX_COPIED, "rows lie in the text");
            }
        }
    });
}

/// A tar archive, packed or plain, and its index.
pub fn archive(bytes: &[u8]) {
    let Ok(unpacked) = unpack(Bounded::over(bytes)) else { return };
    if mistake(&unpacked.head, Format::WebDataset).is_some() {
        return;
    }
    with_files(|index, copied| {
        let files = tar::Files { entries: index, members: Some(copied) };
        let Ok(built) = tar::build(unpacked, bytes.len() as u64, MAX_TEXT, &files) else { return };
        let fields = Fields::default();
        read_again(index, copied, built.rows, Rules::Members(&fields));
    });
}

/// A shard of MDS.
pub fn mds_shard(bytes: &[u8]) {
    let names = ["images", "messages", "n", "image"].map(str::to_owned);
    let encodings = ["list[jpeg]", "json", "int", "jpeg"].map(str::to_owned);
    let sizes = [None, None, Some(8), None];
    let fields = Fields::default();
    let columns = Columns::new(&names, &encodings, &sizes, &fields).expect("they are columns");
    let Ok(unpacked) = unpack(Bounded::over(bytes)) else { return };
    with_files(|index, copied| {
        let files = tar::Files { entries: index, members: Some(copied) };
        let built = mds::build(unpacked, bytes.len() as u64, &columns, MAX_TEXT, &files);
        let Ok(built) = built else { return };
        read_again(index, copied, built.rows, Rules::Columns(&columns));
    });
}

/// The index file of an MDS dataset.
pub fn mds_index(bytes: &[u8]) {
    let store = One(Bytes::copy_from_slice(bytes));
    let index = Location::parse("s3://bucket/data/index.json").expect("it is an address");
    let fields = Fields::default();
    if let Ok(shards) = mds::shards(&store, &index, bytes.len() as u64, &fields) {
        for shard in shards {
            assert!(shard.location.key.starts_with("data/"), "{}", shard.location);
        }
    }
}

/// Energon's split file.
pub fn energon_split(bytes: &[u8]) {
    let store = One(Bytes::copy_from_slice(bytes));
    let file = Location::parse("s3://bucket/data/.nv-meta/split.yaml").expect("it is an address");
    if let Ok(shards) = energon::shards(&store, &file, "train") {
        for shard in shards {
            assert!(shard.location.key.starts_with("data/"), "{}", shard.location);
        }
    }
}

/// A Parquet file.
pub fn table(bytes: &[u8]) {
    let content = Bytes::copy_from_slice(bytes);
    let ranges: Ranges =
        Box::new(move |range| Ok(content.slice(range.start as usize..range.end as usize)));
    let (budget, fields) = (Budget::default(), Fields::default());
    let limits = parquet::Limits {
        budget: &budget,
        unpacked: &Unpacked::default(),
        most_copied: MAX_COPIED,
        max_text: MAX_TEXT,
    };
    with_files(|index, rows| {
        let files = parquet::Files { entries: index, rows };
        let built = parquet::build(ranges, bytes.len() as u64, &fields, &files, &limits);
        let Ok(built) = built else { return };
        read_again(index, rows, built.rows, Rules::Row);
    });
}

/// The body of an index: its first bytes say how many entries it claims.
pub fn index(bytes: &[u8]) {
    let Some((claim, body)) = bytes.split_first_chunk::<8>() else { return };
    let claimed = u64::from_le_bytes(*claim);
    with_files(|index, copied| {
        let mut file = index;
        file.write_all(&[0; HEADER]).expect("the folder has room");
        file.write_all(body).expect("the folder has room");
        copied.set_len(1 << 12).expect("the folder has room");
        let fields = Fields::default();
        for number in [0, 1, claimed.wrapping_sub(1), claimed] {
            drop(Row::read(index, number));
            let entry = entries::read(index, body.len() as u64, claimed, number);
            if let Ok(entry) = entry {
                look(&entry, copied, Rules::Members(&fields));
                look(&entry, copied, Rules::Row);
            }
        }
        look(body, copied, Rules::Members(&fields));
    });
}

/// Reads some rows of what was built.
fn read_again(index: &File, data: &File, rows: u64, rules: Rules<'_>) {
    let body = index.metadata().expect("it is open").len() - HEADER as u64;
    for number in (0..rows).take(64) {
        let entry = entries::read(index, body, rows, number).expect("what is built is there");
        assert!(Entry::from_bytes(&entry).is_some(), "what is built can be read");
        look(&entry, data, rules);
    }
}

fn look(entry: &[u8], data: &File, rules: Rules<'_>) {
    use std::os::unix::fs::FileExt;
    let Ok(range) = locate(entry, rules, MAX_TEXT) else { return };
    let size = data.metadata().expect("it is open").len();
    if range.end > size {
        return;
    }
    let mut bytes = vec![0; (range.end - range.start) as usize];
    data.read_exact_at(&mut bytes, range.start).expect("it is there");
    let object = Arc::new(Location::parse("s3://bucket/data/x.tar").expect("it is an address"));
    if let Ok(record) = record(entry, &bytes.into(), &object, rules) {
        said(record, &Fields::default(), &Media::new(&object, None, true));
    }
}

/// Bytes that are read from front to back; what they unpack to is limited by whoever reads.
struct Bounded(Cursor<Vec<u8>>);

impl Bounded {
    fn over(bytes: &[u8]) -> Self {
        Self(Cursor::new(bytes.to_vec()))
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Forward for Bounded {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        let end = self.0.position().saturating_add(bytes);
        self.0.set_position(end.min(self.0.get_ref().len() as u64));
        Ok(())
    }
}

/// A store with one object, at one address.
struct One(Bytes);

impl Store for One {
    fn stat(&self, object: &Location) -> Result<ObjectInfo> {
        if object.key.ends_with(".info.json") || object.key.ends_with(".info.yaml") {
            return Err(Error::Fetch(Box::new(FetchError {
                kind: FetchErrorKind::NotFound,
                range: None,
                attempts: 1,
                status: None,
                reason: "there is none".into(),
                hint: None,
                request_id: None,
                uri: object.to_string(),
            })));
        }
        Ok(ObjectInfo { size: self.0.len() as u64, version: None })
    }

    fn list(&self, _: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        Ok(Vec::new())
    }

    fn reader(&self, _: &Arc<Location>) -> Result<Box<dyn Forward + Send>> {
        Ok(Box::new(Bounded::over(&self.0)))
    }

    fn ranges(&self, _: &Arc<Location>) -> Ranges {
        let content = self.0.clone();
        Box::new(move |range| Ok(content.slice(range.start as usize..range.end as usize)))
    }
}

/// Two files without names, empty; the same ones again and again, as making one takes longer than
/// most parsers do.
fn with_files(work: impl FnOnce(&File, &File)) {
    thread_local! {
        static FILES: RefCell<Option<[File; 2]>> = const { RefCell::new(None) };
    }
    FILES.with_borrow_mut(|files| {
        let [index, copied] = files.get_or_insert_with(|| [unnamed(), unnamed()]);
        for file in [&mut *index, &mut *copied] {
            file.set_len(0).expect("it can be cut");
            file.rewind().expect("it has a beginning");
        }
        work(index, copied);
    });
}

fn unnamed() -> File {
    let path = (0..).map(|number| {
        std::env::temp_dir().join(format!(".stoker-fuzz-{}-{number}", std::process::id()))
    });
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let mut made = path.filter_map(|path| Some((options.open(&path).ok()?, path)));
    let (file, path) = made.next().expect("there is a name that nobody has");
    remove_file(path).expect("it was just made");
    file
}
