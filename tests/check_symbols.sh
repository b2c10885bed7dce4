#!/usr/bin/env bash
# Checks what the libraries of a build export: libgantry.so gantry_* and nothing else, a plugin gantry_plugin_open and
# nothing else.   tests/check_symbols.sh [BUILD]
set -u
cd "$(dirname "$0")/.."
build=${1:-build/release}
bad=0

exports() { nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//' | sort; }

# expect FILE PATTERN: all exports match, and there is at least one.
expect() {
    local wrong
    [ -n "$(exports "$1")" ] || { echo "$1 exports nothing"; bad=1; }
    wrong=$(exports "$1" | grep -vE "^($2)$" | head -n 10)
    [ -z "$wrong" ] || { printf '%s exports what it should not:\n%s\n' "$1" "$wrong"; bad=1; }
}

expect "$build/libgantry.so" 'gantry_[a-z0-9_]+'
# Every function that gantry.h declares is there.
missing=$(sed -nE 's/^GANTRY_API .*[ *](gantry_[a-z0-9_]+)\(.*/\1/p' include/gantry/gantry.h | sort -u | comm -23 - <(exports "$build/libgantry.so"))
[ -z "$missing" ] || { printf 'gantry.h declares what %s does not export:\n%s\n' "$build/libgantry.so" "$missing"; bad=1; }
for plugin in "$build"/libgantry_*.so "$build"/tests/libgantry_*.so "$build"/examples/libgantry_*.so; do
    [ ! -e "$plugin" ] || expect "$plugin" gantry_plugin_open
done
exit $bad
