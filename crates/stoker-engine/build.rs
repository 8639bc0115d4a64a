//! Compiles the C shim between the engine and libjpeg-turbo.
//!
//! The library itself is built by `turbojpeg-sys` from its vendored source, which needs `cmake` and
//! `nasm` (`apt-get install cmake nasm`). Its build runs before this one and fails without them, on
//! purpose: a libjpeg-turbo without its assembly decodes at less than half the speed.

const HEADERS: [&str; 2] = ["src/image/jpeg_shim.h", "src/image/jpeg_huffman.h"];

fn main() {
    let files =
        ["shim", "tables", "quick", "huffman", "blocks"].map(|it| format!("src/image/jpeg_{it}.c"));
    for file in files.iter().map(String::as_str).chain(HEADERS) {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut build = cc::Build::new();
    let folders = std::env::var_os("DEP_TURBOJPEG_INCLUDE")
        .expect("turbojpeg-sys says where its headers are");
    for folder in folders.to_string_lossy().split(',') {
        build.include(folder);
    }
    build.files(files).warnings(true).compile("stoker_jpeg_shim");
}
