#!/usr/bin/env bash
# Checks that C sources are as .clang-format says: those that differ from $GANTRY_FORMAT_BASE (default: origin/main where
# there is one, else all).
set -u
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || tools/setup.sh format || exit 1
base=${GANTRY_FORMAT_BASE:-}
[ -n "$base" ] || base=$(git merge-base HEAD origin/main 2>/dev/null)
[ "$base" != "$(git rev-parse HEAD)" ] || base=
if [ -n "$base" ]; then
    files=$(git diff --name-only --diff-filter=d "$base" -- '*.c' '*.h')
else
    files=$(git ls-files '*.c' '*.h')
fi
[ -n "$files" ] || exit 0
differ=$(clang-format --dry-run --Werror $files 2>&1 | sed -n 's/:[0-9]*:[0-9]*: error:.*//p' | sort -u | tr '\n' ' ')
[ -z "$differ" ] || { echo "not as .clang-format says (run make format): $differ"; exit 1; }
