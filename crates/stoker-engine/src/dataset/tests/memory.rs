//! Ten million rows take no memory, neither while they are indexed nor when they are read.

use std::io::{self, Read};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use super::super::packing::Forward;
use super::super::{Dataset, Ranges, Store};
use super::{Bytewise, config};
use crate::error::Result;
use crate::fetch::ObjectInfo;
use crate::sample::Location;

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
    let name = "dataset::tests::memory::two_million_rows";
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(["--ignored", "--exact", name]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}
