#!/usr/bin/env bash
# Coverage-guided fuzzing of the doors for foreign bytes, on the stable toolchain:
#     scripts/fuzz.sh SECONDS [TARGET…]
# The first build compiles all dependencies with coverage and AddressSanitizer. What is found lies in
# fuzz/artifacts: put it into testdata/fuzz/TARGET with the fix, where a test runs it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
host=$(rustc -vV | sed -n 's/^host: //p')
all=$(sed -n 's/^    ("\(.*\)", .*/\1/p' crates/stoker-engine/src/testing/fuzz.rs)

coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares"
# Sanitizers are not stable, and this is what a stable compiler has to be told to use them.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="--cfg fuzzing $(echo $coverage) -Zsanitizer=address" \
    cargo build --manifest-path fuzz/Cargo.toml --release --target "$host"

seeds() {
    local golden=testdata/golden
    case $1 in
        image) echo $golden/images $golden/odd ;;
        huffman) echo $golden/jpeg $golden/images ;;
        archive) echo $golden/tar ;;
        mds-shard) echo $golden/mds/lists $golden/mds/plain $golden/mds/zstd ;;
        mds-index) echo $golden/mds/lists $golden/mds/plain ;;
        table) echo $golden/parquet ;;
    esac
    if [ -d "testdata/fuzz/$1" ]; then echo "testdata/fuzz/$1"; fi
}

found=0
for target in ${@:-$all}; do
    corpus=fuzz/corpus/$target
    mkdir -p "$corpus" fuzz/artifacts
    echo "== $target, $seconds seconds"
    # Memory beyond what bytes account for, and time, are finds too.
    TARGET=$target ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
        "fuzz/target/$host/release/doors" "$corpus" $(seeds "$target") \
        -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
        -timeout=20 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="fuzz/artifacts/$target-" 2>&1 | grep -v '^INFO' || found=1
done
exit $found
