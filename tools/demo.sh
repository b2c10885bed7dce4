#!/usr/bin/env bash
# The demo: a trained model reads a picture of a line of text, then Gantry says where its nodes run and what that costs.
set -eu
cd "$(dirname "$0")/.."
build=build/release
picture=examples/line.png
expected="Where does each node run?"
model=$(tools/demo_model.sh)

echo "picture  $picture"
read_text=$($build/examples/read_line "$model" $picture 480)
echo "text     $read_text"
[ "$read_text" = "$expected" ] || { echo "demo: expected \"$expected\"" >&2; exit 1; }
echo
$build/gantry explain "$model" --dim 'x[0]=1' --dim 'x[3]=480' | sed -n '1,40p'
