#!/usr/bin/env bash
# The engine's tests under AddressSanitizer and ThreadSanitizer, on the stable toolchain:
#     scripts/sanitize.sh [address|thread]…
# Each compiles all dependencies anew, into a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
tests() {
    local sanitizer=$1 flags=$2
    shift 2
    echo "== $sanitizer"
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer $flags" CARGO_TARGET_DIR="target/$sanitizer" \
        cargo test --release --target "$host" --package stoker-engine "$@"
}

for sanitizer in ${@:-address thread}; do
    case $sanitizer in
        # Kernels, decoders and what stands around them: all unsafe code of the engine.
        address)
            export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1
            tests address "" --lib -- image:: vision:: engine::
            ;;
        # Whatever threads share: workers, budget, pool, and the flow over them.
        thread)
            export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.txt halt_on_error=0 exitcode=66"
            tests thread "-Cunsafe-allow-abi-mismatch=sanitizer" --lib -- engine::
            ;;
        *) echo "address or thread, not $sanitizer" >&2; exit 2 ;;
    esac
done
