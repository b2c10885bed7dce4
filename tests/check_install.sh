#!/usr/bin/env bash
# Checks that an installed tree stands alone, at another place than it was configured for: a program of somebody else's finds it
# through pkg-config and through CMake, runs a model with it, and uses the libdnnl that came with it; the headers are C++ too; command
# line, plugins and man page are there and work.   tests/check_install.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release} model=$PWD/tests/data/consumer/add.onnx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_install: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { tail -n 5 "$work/install.log"; fail "cmake --install failed"; }
mv "$work/first" "$work/moved"
prefix=$work/moved
find_one() { find "$prefix" -name "$1" | grep . || fail "no $1 is installed"; }

# y = Relu(a + b), and then what is loaded, for the check of libdnnl.
cat >"$work/use.c" <<'C'
#include <gantry/gantry.h>
#include <gantry/provider.h>
#include <stdio.h>

static gantry_status run_model(gantry_session *session, gantry_run *run, gantry_error *err)
{
    const float a[8] = {1, -2, 3, -4, 5, -6, 7, -8}, b[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t dims[2] = {2, 4};
    const float *inputs[2] = {a, b};
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; k < gantry_session_input_count(session) && status == GANTRY_OK; k++) {
        gantry_tensor t = {0};
        t.struct_bytes = sizeof t;
        t.dtype = GANTRY_FLOAT32;
        t.rank = 2;
        t.dims = dims;
        t.buffer.handle = (void *)(uintptr_t)inputs[k];
        t.size_bytes = sizeof a;
        status = gantry_run_bind_input(run, k, &t, err);
    }
    return status == GANTRY_OK ? gantry_run_execute(run, err) : status;
}

static int is_right(gantry_run *run, gantry_error *err)
{
    gantry_tensor y = {0};
    y.struct_bytes = sizeof y;
    if (gantry_run_output(run, 0, &y, err) != GANTRY_OK || y.size_bytes != 32)
        return 0;
    const float *values = (const float *)((const char *)y.buffer.handle + y.buffer.offset_bytes);
    return values[0] == 2 && values[1] == 0 && values[6] == 8 && values[7] == 0;
}

int main(int argc, char **argv)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_runtime *runtime = NULL;
    gantry_session *session = NULL;
    gantry_run *run = NULL;
    int good = argc == 2 && gantry_runtime_create(NULL, &runtime, &err) == GANTRY_OK &&
               gantry_session_create_from_file(runtime, argv[1], NULL, &session, NULL, &err) == GANTRY_OK &&
               gantry_run_create(session, &run, &err) == GANTRY_OK && run_model(session, run, &err) == GANTRY_OK &&
               is_right(run, &err);
    if (!good)
        fprintf(stderr, "%s\n", err.message);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps))
        fputs(line, stdout);
    gantry_run_destroy(&run);
    gantry_session_destroy(&session, NULL);
    return gantry_runtime_destroy(&runtime, NULL) || !good;
}
C

pc=$(find_one gantry.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs gantry)
library=$(dirname "$(find_one libgantry.so)")
${CC:-cc} -std=c11 -Wall -Wextra -Werror "$work/use.c" $flags -Wl,-rpath,"$library" -o "$work/use" || fail "pkg-config's flags do not build a program"
"$work/use" "$model" >"$work/maps" || fail "a program built with pkg-config's flags does not run a model"
grep -q "$library/libdnnl" "$work/maps" || fail "the program does not use the libdnnl beside libgantry"
${CXX:-c++} -std=c++17 -Wall -Wextra -Wno-missing-field-initializers -Werror -fsyntax-only -x c++ $flags "$work/use.c" || fail "the headers are no C++"

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(use C)
find_package(gantry 0.1 REQUIRED)
add_executable(use ../use.c)
target_link_libraries(use gantry::gantry)
CMAKE
cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 && cmake --build "$work/project/build" >>"$work/cmake.log" 2>&1 &&
    "$work/project/build/use" "$model" >/dev/null || { tail -n 5 "$work/cmake.log"; fail "find_package(gantry) does not build a program that runs"; }

# The template of a provider, copied elsewhere, is built against the installed tree alone, and loads.
cp -r "$prefix/share/gantry/plugin" "$work/plugin" || fail "the template of a provider is not installed"
cmake -S "$work/plugin" -B "$work/plugin/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS=-Werror >"$work/cmake.log" 2>&1 &&
    cmake --build "$work/plugin/build" >>"$work/cmake.log" 2>&1 || { tail -n 5 "$work/cmake.log"; fail "examples/plugin does not build against the installed tree"; }
example=$work/plugin/build/libgantry_example.so
[ "$(nm -D --defined-only "$example" | awk '{print $NF}')" = gantry_plugin_open ] || fail "the example exports more than gantry_plugin_open"

# A provider in C++ needs no more than the header.
cat >"$work/provider.cpp" <<'CPP'
#include <gantry/provider.h>
GANTRY_MANIFEST("cpp", "1.0", "", "");
extern "C" GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                                                 gantry_error *)
{
    gantry_verdict verdict = {};
    gantry_refuse(&verdict, GANTRY_REFUSE_no_kernel, "x", "y", "z", "");
    return abi && GANTRY_HAS(gantry_host, host, cache_get) && out_plugin->struct_bytes ? GANTRY_OK : GANTRY_PROVIDER;
}
CPP
${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden $flags "$work/provider.cpp" -o "$work/libgantry_cpp.so" || fail "a provider in C++ does not build"

for header in gantry.h provider.h types.h refusals.def; do
    find_one "$header" >/dev/null
done
page=$(find_one gantry.1)
cmp -s "$page" docs/man/gantry.1 || fail "another man page than docs/man/gantry.1 is installed"
program=$prefix/bin/gantry
if [ -x "$program" ]; then
    "$program" run "$model" --random 1 >/dev/null || fail "the installed command line does not run a model"
    "$program" plugin check "$example" >"$work/check.log" 2>&1 || { grep -v ^pass "$work/check.log"; fail "the example does not pass gantry plugin check"; }
    template=$work/plugin/leaky_relu.onnx
    "$program" run "$template" --random 1 --outputs "$work/reference.npz" >/dev/null &&
        "$program" run "$template" --random 1 --check "$work/reference.npz" --report --plugin "$example" --providers example,cpu --option plan=priority >"$work/report" &&
        grep -q '2 on example, 1 on cpu' "$work/report" || fail "the example does not run the template's model"
    mkdir -p "$library/gantry" && cp "$example" "$library/gantry/libgantry_example.so"
    "$program" providers --plugin example >/dev/null || fail "a provider in the installed folder is not found by its name"
    for plugin in "$library"/gantry/libgantry_*.so "$example"; do
        [ -e "$plugin" ] || continue
        "$program" providers --plugin "$plugin" >/dev/null || fail "the installed ${plugin##*/} does not load"
    done
fi
