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
[ -z "$files" ] || clang-format --dry-run --Werror $files
