#!/usr/bin/env bash
# The engine's tests under AddressSanitizer and ThreadSanitizer, on the stable toolchain:
#     scripts/sanitize.sh [address|thread]…
# Each compiles all dependencies anew, into a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
# Sanitizers are not stable, and this is what a stable compiler has to be told to use them.
export RUSTC_BOOTSTRAP=1
# A little optimised: compiled in half the time, and what is to be seen is still there.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_INCREMENTAL=false
found=0

tests() {
    local sanitizer=$1
    shift
    echo "== $sanitizer: $*"
    cargo test --release --target "$host" --target-dir "target/$sanitizer" --package stoker-engine \
        --no-fail-fast "$@" || found=1
}

# All unsafe code of the engine and what stands around it: kernels, decoders, blocks. The C code is
# compiled for it as well: libjpeg-turbo, libwebp, zstd, and ours inside libjpeg-turbo. What assembly
# does is not seen.
address() {
    export RUSTFLAGS="-Zsanitizer=address"
    export "CFLAGS_${host//-/_}=-fsanitize=address -g1 -fno-omit-frame-pointer"
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1
    tests address --lib -- image:: vision:: engine:: pack::
    tests address --test golden --test vision_golden --test fuzz --test stall
    tests address --test equality -- --test-threads=2
}

# What threads share: workers, budget, pool, requests, cache, and the flow over all of them. Simulations
# are left out: they have one thread, and thousands of seeds. The standard library is compiled for it
# too. Otherwise what it orders (mutexes, the counts of Arc) is not seen, and each use of it is a false
# find. C code has no threads here.
thread() {
    rustup component list --installed | grep -q '^rust-src' || rustup component add rust-src
    export RUSTFLAGS="-Zsanitizer=thread"
    export TSAN_OPTIONS="halt_on_error=0 exitcode=66 second_deadlock_stack=1"
    tests thread -Zbuild-std --lib -- engine:: fetch:: loader:: metrics:: --skip simulation
    tests thread -Zbuild-std --test stall
    tests thread -Zbuild-std --test equality -- --test-threads=2
}

for sanitizer in ${@:-address thread}; do
    case $sanitizer in
        address | thread) ("$sanitizer"; exit $found) || found=1 ;;
        *) echo "address or thread, not $sanitizer" >&2; exit 2 ;;
    esac
done
exit $found
