//! Compiles the counter that tells libFuzzer of edges within C: see `c_edges.c`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c_edges.c");
    cc::Build::new().file("c_edges.c").warnings(true).compile("stoker_c_edges");
    // GCC calls this name at each edge, and libFuzzer has it only to say that it no longer counts.
    println!("cargo::rustc-link-arg=-Wl,--wrap=__sanitizer_cov_trace_pc");
}
