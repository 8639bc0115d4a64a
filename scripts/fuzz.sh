#!/usr/bin/env bash
# Coverage-guided fuzzing of the doors for foreign bytes, on the stable toolchain:
#     scripts/fuzz.sh SECONDS [TARGET…]
# The first build compiles all dependencies with coverage and AddressSanitizer, the C ones too. Inputs
# that reach something new are kept in fuzz/corpus, where the next run goes on. What is found lies in
# fuzz/artifacts: put it into testdata/fuzz/TARGET with the fix, where a test runs it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-fuzz/target}
all=$(sed -n 's/^    ("\(.*\)", .*/\1/p' crates/stoker-engine/src/testing/fuzz.rs)

coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares"
# The same of C, as GCC has it; fuzz/c_edges.c counts what it calls.
c_calls=$(printf -- ' -Wl,--defsym=__sanitizer_cov_trace_%s=0' \
    pc cmp1 cmp2 cmp4 cmp8 const_cmp1 const_cmp2 const_cmp4 const_cmp8 switch cmpf cmpd)
c_flags="-fsanitize=address -fsanitize-coverage=trace-pc,trace-cmp -g1 -fno-omit-frame-pointer"

build() {
    cp Cargo.lock fuzz/Cargo.lock
    # Sanitizers are not stable, and this is what a stable compiler has to be told to use them.
    # LDFLAGS is for the small programs by which CMake finds out what a compiler can do.
    # `fuzzing` makes decoders of PNG overlook checksums, which no fuzzer guesses.
    env RUSTC_BOOTSTRAP=1 RUSTFLAGS="--cfg fuzzing $(echo $coverage) -Zsanitizer=address" \
        "CFLAGS_${host//-/_}=$c_flags" LDFLAGS="$c_calls" CARGO_TARGET_DIR="$target_dir" \
        cargo build --manifest-path fuzz/Cargo.toml --release --target "$host"
}

# Memory beyond what bytes account for, and time, are finds too.
fuzz() {
    local corpus=fuzz/corpus/$1 seeds=fuzz/seeds/$1
    mkdir -p "$corpus" "$seeds" fuzz/artifacts
    TARGET=$1 SEEDS=$seeds ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
        "$target_dir/$host/release/doors" "$corpus" "$seeds" \
        -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
        -timeout=20 -print_final_stats=1 -verbosity=0 -print_funcs=0 -artifact_prefix="fuzz/artifacts/$1-"
}

build
found=0
for target in ${@:-$all}; do
    echo "== $target, $seconds seconds"
    fuzz "$target" 2>&1 || found=1
done
exit $found
