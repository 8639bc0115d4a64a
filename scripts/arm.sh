#!/usr/bin/env bash
# The engine's own tests of images, patches and text on a 64-bit Arm processor, which qemu plays:
#     scripts/arm.sh [TEST…]
# What is tested is the NEON kernels and the C that decodes JPEG, not how fast they are. The first build
# compiles all dependencies, into a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
prefix=aarch64-linux-gnu
die() { echo "make arm: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

packages=()
has "$prefix-gcc" || packages+=("gcc-$prefix" libc6-dev-arm64-cross)
has "$prefix-g++" || packages+=("g++-$prefix")
has qemu-aarch64-static || packages+=(qemu-user-static)
if ((${#packages[@]})); then
    has apt-get || die "please install: ${packages[*]}"
    ((EUID == 0)) || die "please run: sudo apt-get install ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -qq --yes --no-install-recommends "${packages[@]}"
fi
rustc --print target-libdir --target "$target" | xargs test -d ||
    die "Rust has no library for it: run 'rustup target add $target'"

# Nothing is timed, and less optimised code is compiled in half of the time.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=0
export CARGO_TARGET_DIR=target/arm
export CC_aarch64_unknown_linux_gnu="$prefix-gcc" CXX_aarch64_unknown_linux_gnu="$prefix-g++"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$prefix-gcc"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/$prefix"
(($#)) || set -- image:: vision:: text::
cargo test --release --target "$target" --package stoker-engine --lib -- "$@"
