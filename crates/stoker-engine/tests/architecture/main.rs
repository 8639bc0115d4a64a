//! The house has rooms; this test says which room has a door to which.
//!
//! A new path to another room that is missing in [`DOORS`] fails: move the code, or add the door on
//! purpose and say so in ARCHITECTURE.md. The sizes of files and the dependencies of the crates are
//! held the same way. The scanner that finds the paths is in `scan.rs`, with tests of its own.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod scan;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What every room may use.
const WORDS: [&str; 5] = ["error", "metrics", "sample", "simd", "thread"];

/// The modules of the engine in the order of `lib.rs`, each with the rooms it may use besides the
/// words and itself.
const DOORS: [(&str, &[&str]); 16] = [
    ("error", &[]),
    ("metrics", &[]),
    ("sample", &[]),
    ("simd", &[]),
    ("thread", &[]),
    ("recipe", &[]),
    ("plan", &["recipe"]),
    ("dataset", &["recipe", "fetch"]),
    ("fetch", &["recipe"]),
    ("image", &["recipe"]),
    ("vision", &["recipe"]),
    ("text", &["recipe"]),
    ("pack", &["recipe"]),
    ("engine", &["recipe", "plan", "dataset", "fetch", "image", "vision", "text", "pack"]),
    (
        "loader",
        &["recipe", "plan", "dataset", "fetch", "image", "vision", "text", "pack", "engine"],
    ),
    (
        "testing",
        &["recipe", "plan", "dataset", "fetch", "image", "vision", "text", "pack", "engine"],
    ),
];

/// Doubles for tests; any room's tests may use them.
const TESTING: &str = "testing";

/// The crates, each with those of the workspace that it may depend on.
const CRATES: [(&str, &[&str]); 4] = [
    ("crates/stoker-engine", &[]),
    ("crates/stoker-s3", &[]),
    ("crates/stoker-cli", &["stoker-engine", "stoker-s3"]),
    ("python", &["stoker-cli", "stoker-engine", "stoker-s3"]),
];

/// Dependencies that belong to one crate: the command line and Python are doors, not rooms.
const OWNED: [(&str, &str); 4] = [
    ("clap", "crates/stoker-cli"),
    ("indicatif", "crates/stoker-cli"),
    ("pyo3", "python"),
    ("s3s", "crates/stoker-s3"),
];

#[test]
fn rooms_use_only_their_doors() {
    let mut wrong = Vec::new();
    for file in files(&source(), &["rs"]) {
        let inside = file.strip_prefix(source()).unwrap();
        let path = scan::module_path(inside);
        let Some(room) = path.first() else { continue };
        let Some((_, doors)) = DOORS.iter().find(|(name, _)| name == room) else {
            wrong.push(format!("{} is in no room", inside.display()));
            continue;
        };
        for used in scan::rooms_used(&fs::read_to_string(&file).unwrap(), path.len()) {
            let used = used.as_str();
            let open = WORDS.contains(&used) || doors.contains(&used) || used == room;
            if !open && used != TESTING {
                wrong.push(format!("{}: `{room}` has no door to `{used}`", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lib_lists_the_rooms_in_the_order_that_data_flows() {
    let code = fs::read_to_string(source().join("lib.rs")).unwrap();
    let listed = scan::modules(&code);
    assert_eq!(listed, DOORS.map(|(room, _)| room));
}

#[test]
fn no_file_outgrows_a_reading_and_each_says_why_it_is_there() {
    let mut wrong = Vec::new();
    let folders = CRATES.iter().map(|(folder, _)| match *folder {
        "python" => root().join(folder),
        folder => root().join(folder).join("src"),
    });
    for file in folders.flat_map(|folder| files(&folder, &["rs", "py", "pyi"])) {
        let code = fs::read_to_string(&file).unwrap();
        let (lines, name) = (code.lines().count(), file.display());
        if lines > 400 {
            wrong.push(format!("{name} has {lines} lines, and 400 are allowed: split it"));
        }
        // A file of tests says what it is there for in their names.
        let explains = code.starts_with("//!") || file.ends_with("tests.rs");
        if file.extension().is_some_and(|extension| extension == "rs") && !explains {
            wrong.push(format!("{name} does not open with `//!` and why it is there"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_depend_on_what_is_theirs() {
    let ours: BTreeSet<String> =
        CRATES.iter().map(|(folder, _)| name_of(&manifest(folder))).collect();
    for (folder, allowed) in CRATES {
        for name in dependencies(&manifest(folder)) {
            if ours.contains(&name) {
                assert!(allowed.contains(&name.as_str()), "{folder} must not depend on {name}");
            }
            if let Some((_, owner)) = OWNED.iter().find(|(owned, _)| *owned == name) {
                assert_eq!(folder, *owner, "{name} belongs to {owner}");
            }
        }
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn manifest(folder: &str) -> toml::Table {
    let path = root().join(folder).join("Cargo.toml");
    fs::read_to_string(&path).unwrap().parse().unwrap()
}

fn name_of(manifest: &toml::Table) -> String {
    manifest["package"]["name"].as_str().unwrap().to_owned()
}

/// What a crate is built from, on any platform; what only its tests use does not count.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let platforms = platforms.into_iter().flat_map(|table| table.values());
    let tables = platforms.filter_map(toml::Value::as_table).chain([manifest]);
    tables
        .flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")])
        .flatten()
        .filter_map(toml::Value::as_table)
        .flatten()
        .map(|(name, entry)| {
            let renamed = entry.get("package").and_then(toml::Value::as_str);
            renamed.unwrap_or(name).to_owned()
        })
        .collect()
}

/// The files of a folder with one of these extensions; hidden folders and caches are left out.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "__pycache__" {
                found.extend(files(&path, extensions));
            }
        } else if extensions.iter().any(|end| path.extension().is_some_and(|have| have == *end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}
