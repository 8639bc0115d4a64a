//! Rows take no memory, neither while they are indexed nor when they are read: ten million in one
//! shard, a billion in ten thousand.

use std::io::{self, Read};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use super::super::packing::Forward;
use super::super::sidecar::{Header, Key, Kind, places};
use super::super::{Dataset, Ranges, Store};
use super::{Bytewise, config};
use crate::error::Result;
use crate::fetch::ObjectInfo;
use crate::recipe;
use crate::sample::{Location, Scheme};

/// As many rows as asked for, made while they are read.
struct Generated(u64);

struct Rows {
    rows: std::ops::Range<u64>,
    rest: io::Cursor<Vec<u8>>,
}

const ROW: usize = 64;

impl Read for Rows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.position() as usize == self.rest.get_ref().len() {
            let rows = self.rows.by_ref().take(4096);
            let rows = rows.flat_map(|row| format!("{{\"row\": \"{row:052}\"}}\n").into_bytes());
            self.rest = io::Cursor::new(rows.collect());
        }
        self.rest.read(buffer)
    }
}

impl Store for Generated {
    fn stat(&self, _: &Location) -> Result<ObjectInfo> {
        Ok(ObjectInfo { size: self.0 * ROW as u64, version: None })
    }

    fn list(&self, _: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        panic!("one object is not listed")
    }

    fn reader(&self, _: &Arc<Location>) -> Result<Box<dyn Forward + Send>> {
        Ok(Box::new(Bytewise(Rows { rows: 0..self.0, rest: io::Cursor::default() })))
    }

    fn ranges(&self, _: &std::sync::Arc<Location>) -> Ranges {
        panic!("lines are read from front to back")
    }
}

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Indexes that many rows, opens them again and reads some: memory must not follow.
fn check(rows: u64) {
    let folder = tempfile::tempdir().unwrap();
    let before = status("VmRSS");
    let open = || Dataset::open_from(&config(&folder), &Generated(rows), &mut |_, _| {}).unwrap();
    let started = Instant::now();
    assert_eq!(open().rows(), rows);
    let built = started.elapsed();
    let started = Instant::now();
    let data = open();
    let opened = started.elapsed();
    let started = Instant::now();
    for number in 0..100_000 {
        let row = number * 7_919 % rows;
        let range = data.locate(row).unwrap().range.unwrap();
        assert_eq!(range, row * ROW as u64..(row + 1) * ROW as u64 - 1);
    }
    let located = started.elapsed() / 100_000;
    let grown = status("VmHWM") - before;
    println!(
        "{rows} rows: built {built:?}, opened {opened:?}, row {located:?}, {grown} bytes more"
    );
    assert!(grown < 8 << 20, "memory grew by {grown} bytes");
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn two_million_rows() {
    check(2_000_000);
}

#[test]
#[ignore = "some seconds: for figures"]
fn ten_million_rows() {
    check(10_000_000);
}

#[test]
fn indexing_and_reading_two_million_rows_takes_less_than_8_mib() {
    run_alone("dataset::tests::memory::two_million_rows");
}

fn run_alone(name: &str) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(["--ignored", "--exact", name]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

const SHARDS: usize = 10_000;
const ROWS_OF_A_SHARD: u64 = 100_000;

/// Ten thousand shards that are listed and never read.
struct Listed;

impl Listed {
    const INFO: ObjectInfo = ObjectInfo { size: 1 << 30, version: None };

    fn shard(number: usize) -> Location {
        let key = format!("shards/{number:05}.jsonl");
        Location { scheme: Scheme::S3, authority: "bucket".into(), key }
    }
}

impl Store for Listed {
    fn stat(&self, _: &Location) -> Result<ObjectInfo> {
        panic!("what is listed is not asked for")
    }

    fn list(&self, _: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        Ok((0..SHARDS).map(|number| (Self::shard(number), Self::INFO)).collect())
    }

    fn reader(&self, _: &Arc<Location>) -> Result<Box<dyn Forward + Send>> {
        panic!("its index is there")
    }

    fn ranges(&self, _: &Arc<Location>) -> Ranges {
        panic!("its index is there")
    }
}

/// Writes an index of empty rows for each shard; their files take no room on the disk.
fn write_indexes(folder: &std::path::Path) {
    let body = ROWS_OF_A_SHARD * 16;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&vec![0; body as usize]);
    for number in 0..SHARDS {
        let location = Listed::shard(number);
        let header = Header {
            key: Key::new(&location, &Listed::INFO, 16 << 20, ""),
            kind: Kind::Lines,
            notes: 0,
            rows: ROWS_OF_A_SHARD,
            fingerprint: number as u64,
            lines: None,
            body: hash.digest(),
        };
        let place = &places(&location, folder.to_str(), "").unwrap()[0];
        std::fs::write(place.index(), header.to_bytes()).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(place.index()).unwrap();
        file.set_len(80 + body).unwrap();
    }
}

#[test]
#[ignore = "counts the memory of its process: run by the test below, alone"]
fn a_billion_rows() {
    let folder = tempfile::tempdir().unwrap();
    write_indexes(folder.path());
    let source = vec!["s3://bucket/shards/*.jsonl".to_owned()];
    let config = recipe::Dataset { source, ..config(&folder) };
    let before = status("VmRSS");
    let started = Instant::now();
    let data = Dataset::open_from(&config, &Listed, &mut |_, _| {}).unwrap();
    let opened = started.elapsed();
    assert_eq!(data.rows(), SHARDS as u64 * ROWS_OF_A_SHARD);
    let locate = |count: u64| {
        let started = Instant::now();
        for number in 0..count {
            let row = number * 7_919_777 % data.rows();
            let extent = data.locate(row).unwrap();
            assert_eq!(*extent.object, Listed::shard((row / ROWS_OF_A_SHARD) as usize));
        }
        started.elapsed() / count as u32
    };
    let (first, later) = (locate(20_000), locate(20_000));
    let grown = status("VmHWM") - before;
    println!("opened {opened:?}, row {first:?} at first, {later:?} later, {grown} bytes more");
    assert!(grown < 32 << 20, "memory grew by {grown} bytes");
}

#[test]
fn opening_a_billion_rows_in_ten_thousand_shards_takes_less_than_32_mib() {
    run_alone("dataset::tests::memory::a_billion_rows");
}
