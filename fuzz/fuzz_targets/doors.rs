//! All doors for foreign bytes, one of them by the environment: `TARGET=image SEEDS=FOLDER doors
//! CORPUS… FOLDER`, where what is known of the door is written into the folder first.
//!
//! One program and not sixteen: each would be the whole engine again, compiled for minutes.

#![no_main]

// What the tests of the engine begin with, too.
#[path = "../../crates/stoker-engine/tests/fuzz/seeds.rs"]
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use stoker_engine::testing::fuzz::{TARGETS, Target};

static DOOR: OnceLock<Target> = OnceLock::new();
/// What the last panic said.
static SAID: Mutex<String> = Mutex::new(String::new());
/// Longest input that a fuzzer is to change.
const LONGEST: usize = 1 << 16;

fn begin() {
    // A panic that is caught within is a refusal (readers of Parquet do that); libFuzzer's hook
    // would take it for a crash. One that comes out of a door still is one.
    let _libfuzzers = take_hook();
    set_hook(Box::new(|panic| *SAID.lock().expect("it is one thread") = panic.to_string()));
    let name = std::env::var("TARGET").unwrap_or_default();
    let found = TARGETS.into_iter().find(|(it, _)| *it == name);
    let names = TARGETS.map(|(name, _)| name).join(", ");
    let door = found.unwrap_or_else(|| panic!("set TARGET to one of {names}")).1;
    DOOR.set(door).expect("it begins once");
    if let Some(folder) = std::env::var_os("SEEDS").map(PathBuf::from) {
        let small = seeds::of(&name).into_iter().filter(|(_, bytes)| bytes.len() <= LONGEST);
        for (number, (_, bytes)) in small.enumerate() {
            std::fs::write(folder.join(number.to_string()), bytes).expect("the folder has room");
        }
    }
}

libfuzzer_sys::fuzz_target!(init: begin(), |bytes: &[u8]| {
    let door = DOOR.get().expect("it has begun");
    if catch_unwind(AssertUnwindSafe(|| door(bytes))).is_err() {
        eprintln!("{}", SAID.lock().expect("it is one thread"));
        std::process::abort();
    }
});
