#!/usr/bin/env bash
# Checks that the OpenCL provider is what a third party could write: a copy of its folder builds against an installed Gantry, with
# nothing else of the tree at hand, exports gantry_plugin_open only, does not need libgantry, and loads.   tests/check_opencl_alone.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
fail() { echo "check_opencl_alone: $*" >&2; exit 1; }
[ -e "$build/libgantry_opencl.so" ] || { echo "check_opencl_alone: OpenCL is not installed; nothing to check"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/gantry" >"$work/log" 2>&1 || { tail -n 5 "$work/log"; fail "cmake --install failed"; }
cp -r providers/opencl "$work/opencl"
cmake -S "$work/opencl" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/gantry" >"$work/log" 2>&1 && cmake --build "$work/build" >>"$work/log" 2>&1 ||
    { tail -n 15 "$work/log"; fail "the folder does not build alone"; }
plugin=$work/build/libgantry_opencl.so

grep -rlE '^#include "(\.\./|base/|graph/|core/|providers/)' "$work/opencl" && fail "these files include more than the installed headers"
exported=$(nm -D --defined-only "$plugin" | awk '{print $3}')
[ "$exported" = gantry_plugin_open ] || fail "it exports $exported"
readelf -d "$plugin" | grep NEEDED | grep -q libgantry && fail "it links libgantry"
program=$work/gantry/bin/gantry
[ -x "$program" ] || exit 0
POCL_CACHE_DIR=$work "$program" providers --plugin "$plugin" >"$work/said" 2>&1 || { cat "$work/said"; fail "it does not load"; }
grep -q opencl "$work/said" || { cat "$work/said"; fail "gantry providers does not list it"; }
