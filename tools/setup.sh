#!/usr/bin/env bash
# Brings what Gantry builds on: Debian packages by name, and oneDNN. Does nothing, without network, when all is there.
#
#     tools/setup.sh [build|test|format|corpus]      what is needed to build (default), and to test; and to format and lint;
#                                                    and to make the corpus
#
# Packages need root or sudo. oneDNN comes from PyPI into build/deps/onednn, unless GANTRY_DNNL_ROOT or the system has
# version 3.2 or later.
set -eu
cd "$(dirname "$0")/.."

build_packages="build-essential cmake ninja-build pkg-config python3 python3-venv
    libprotobuf-c-dev protobuf-c-compiler libopenblas-serial-dev libsleef-dev libjansson-dev libxxhash-dev
    zlib1g-dev libpng-dev libjpeg62-turbo-dev opencl-c-headers ocl-icd-opencl-dev"
test_packages="libcriterion-dev pocl-opencl-icd"
corpus_packages="libonnx-testdata"
format_packages="clang-format clang-tidy"
onednn_wheels="onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0"

say() { echo "setup: $*" >&2; }

# Prints those of its arguments that dpkg does not know as installed.
missing_packages() {
    local installed package
    installed=" $(dpkg-query -W -f '${Package}:${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/:installed$//p' | tr '\n' ' ')"
    for package in "$@"; do
        case "$installed" in *" $package "*) ;; *) echo "$package" ;; esac
    done
}

install_packages() {
    local missing as_root=
    missing=$(missing_packages "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || as_root="sudo"
    if [ -n "$as_root" ] && ! command -v sudo >/dev/null; then
        say "these packages are missing and need root to install: $missing"
        return 1
    fi
    say "installing $missing"
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be there and current; fetching them is the slow part of a small installation.
    $as_root apt-get install -y -q --no-install-recommends $missing >build/deps/apt.log 2>&1 && return 0
    $as_root apt-get update -q >build/deps/apt.log 2>&1 || true
    $as_root apt-get install -y -q --no-install-recommends $missing >>build/deps/apt.log 2>&1 && return 0
    tail -n 20 build/deps/apt.log >&2
    say "apt-get failed, see build/deps/apt.log"
    return 1
}

# Is there a oneDNN of 3.2 or later below this prefix?
has_onednn() {
    local header=$1/include/oneapi/dnnl/dnnl_version.h major minor
    [ -f "$header" ] || return 1
    major=$(sed -n 's/^#define DNNL_VERSION_MAJOR //p' "$header")
    minor=$(sed -n 's/^#define DNNL_VERSION_MINOR //p' "$header")
    [ "$major" -gt 3 ] || { [ "$major" = 3 ] && [ "$minor" -ge 2 ]; }
}

install_onednn() {
    local venv=build/deps/onednn
    [ ! -f $venv/complete ] || return 0
    ! has_onednn "${GANTRY_DNNL_ROOT:-/none}" && ! has_onednn /usr && ! has_onednn /usr/local || return 0
    say "installing oneDNN ($onednn_wheels) into $venv"
    rm -rf $venv
    python3 -m venv $venv
    # --target would lose lib/, which both packages own.
    $venv/bin/pip install -q --disable-pip-version-check $onednn_wheels
    has_onednn $venv || { say "the packages brought no oneDNN 3.2 or later"; return 1; }
    touch $venv/complete
}

packages=$build_packages
case "${1:-build}" in
build) ;;
test) packages="$packages $test_packages" ;;
format) packages="$packages $test_packages $format_packages" ;;
corpus) packages="$packages $corpus_packages" ;;
*) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

mkdir -p build/deps
exec 9>build/deps/lock
flock 9
if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    install_packages $packages
else
    say "no apt-get here: install the equivalents of" $packages
fi
install_onednn
