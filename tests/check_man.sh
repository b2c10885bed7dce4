#!/usr/bin/env bash
# docs/man/gantry.1 is what the program and gantry.h say now.   tests/check_man.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
tools/man.py "${1:-build/release}/gantry" | diff -u docs/man/gantry.1 - ||
    { echo "check_man: docs/man/gantry.1 is stale: tools/man.py build/release/gantry > docs/man/gantry.1"; exit 1; }
