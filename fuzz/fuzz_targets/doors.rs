//! All doors for foreign bytes, one of them by the environment: `TARGET=image doors CORPUS…`.
//!
//! One program and not sixteen: each would be the whole engine again, compiled for minutes.

#![no_main]

use std::sync::OnceLock;

use stoker_engine::testing::fuzz::{TARGETS, Target};

static DOOR: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let door = DOOR.get_or_init(|| {
        // A panic that is caught within is a refusal (readers of Parquet do that); libFuzzer's hook
        // would take it for a crash. One that comes out here still is one.
        let _libfuzzers = std::panic::take_hook();
        let name = std::env::var("TARGET").unwrap_or_default();
        let found = TARGETS.into_iter().find(|(it, _)| *it == name);
        let names = TARGETS.map(|(name, _)| name).join(", ");
        found.unwrap_or_else(|| panic!("set TARGET to one of {names}")).1
    });
    door(bytes);
});
