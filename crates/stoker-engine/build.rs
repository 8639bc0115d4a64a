//! Compiles the C shim between the engine and libjpeg-turbo.
//!
//! The library itself is built by `turbojpeg-sys` from its vendored source, which needs `cmake` and
//! `nasm` (`apt-get install cmake nasm`). Its build runs before this one and fails without them, on
//! purpose: a libjpeg-turbo without its assembly decodes at less than half the speed.

fn main() {
    let files = ["src/image/jpeg_shim.c", "src/image/jpeg_huffman.c"];
    for file in files.iter().chain(&["src/image/jpeg_shim.h"]) {
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
