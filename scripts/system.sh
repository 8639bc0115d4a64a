#!/usr/bin/env bash
# What the build needs of the system: a C compiler, cmake and nasm for libjpeg-turbo (which would be
# half as fast without nasm, so the build fails without it), Rust and Python; what the cluster on one
# machine is made with, iproute2 and util-linux; valgrind, which counts instructions; and Chromium, in
# which tests look at pages. Missing packages are installed where that is possible, otherwise named.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

die() { echo "make setup: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

packages=()
has cc || packages+=(build-essential)
has cmake || packages+=(cmake)
has nasm || packages+=(nasm)
has valgrind || packages+=(valgrind)
{ has chromium && has chromedriver; } || packages+=(chromium chromium-driver)
{ has ip && has tc; } || packages+=(iproute2)
{ has nsenter && has unshare; } || packages+=(util-linux)
if has "$python" && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    packages+=(python3-venv)
fi
if ((${#packages[@]})); then
    has apt-get || die "please install: ${packages[*]}"
    ((EUID == 0)) || die "please run: sudo apt-get install ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -qq --yes --no-install-recommends "${packages[@]}"
fi

wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
has cargo || die "please install Rust $wanted or newer: https://rustup.rs"
found=$(rustc --version | cut -d' ' -f2)
printf '%s\n' "$wanted" "$found" | sort --check=quiet --version-sort ||
    die "Rust $wanted or newer is needed, this is $found: run 'rustup update'"

has "$python" || die "please install Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer is needed, this is $("$python" --version): make setup PYTHON=python3.12"
