#!/usr/bin/env bash
# Checks that an installed tree stands alone, at another place than it was configured for: a C program and a C++ compiler
# find it through pkg-config, CMake finds it, and its own libdnnl is the one in use.   tests/check_install.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_install: $*"; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { tail -n 5 "$work/install.log"; fail "cmake --install failed"; }
mv "$work/first" "$work/moved"
prefix=$work/moved
cat >"$work/use.c" <<'C'
#include <gantry/gantry.h>
#include <gantry/provider.h>
#include <stdio.h>

int main(void)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_runtime *runtime = NULL;
    if (gantry_runtime_create(NULL, &runtime, &err) != GANTRY_OK || gantry_runtime_provider_count(runtime) < 1)
        return 1;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps))
        fputs(line, stdout);
    return gantry_runtime_destroy(&runtime, &err);
}
C

pc=$(find "$prefix" -name gantry.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs gantry)
library=$(dirname "$(find "$prefix" -name libgantry.so)")
${CC:-cc} -std=c11 -Wall -Wextra -Werror "$work/use.c" $flags -Wl,-rpath,"$library" -o "$work/use" || fail "pkg-config's flags do not build a program"
"$work/use" >"$work/maps" || fail "a program built with pkg-config's flags does not run"
grep -q "$library/libdnnl" "$work/maps" || fail "the program does not use the libdnnl beside libgantry"
${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -fsyntax-only -x c++ $flags "$work/use.c" || fail "the headers are no C++"

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(use C)
find_package(gantry 0.1 REQUIRED)
add_executable(use ../use.c)
target_link_libraries(use gantry::gantry)
CMAKE
cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 && cmake --build "$work/project/build" >>"$work/cmake.log" 2>&1 &&
    "$work/project/build/use" >/dev/null || { tail -n 5 "$work/cmake.log"; fail "find_package(gantry) does not build a program that runs"; }
[ ! -x "$prefix/bin/gantry" ] || "$prefix/bin/gantry" --help >/dev/null || fail "the installed command line does not run"
