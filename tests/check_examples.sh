#!/usr/bin/env bash
# The examples do what their first lines say, on small models (read_line is what make demo runs).   tests/check_examples.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release} data=tests/data
fail() { echo "check_examples: $*" >&2; exit 1; }
says() { # says WORDS COMMAND ...
    local words=$1 said
    shift
    said=$("$@" 2>&1) || fail "$* ends with $?: $said"
    [[ $said == *"$words"* ]] || fail "$* says: $said"
}

# The second channel of rgb.png has the largest mean.
says "class 1 of 3" "$build/examples/classify" $data/consumer/channels.onnx $data/io/rgb.png 8x8
# A fake device: 0 + 2, a hundred times, without leaving it.
says "after 100 steps the first element is 200" "$build/examples/device_loop" $data/consumer/step.onnx \
    "$build/tests/libgantry_fake.so" fake fake state next 100
for source in examples/*.c; do
    [ -x "$build/examples/$(basename "$source" .c)" ] || fail "$source is not built"
done
