#!/usr/bin/env bash
# The demo: a trained model reads a picture of a line of text, then Gantry says where its nodes run and what that costs.
set -eu
cd "$(dirname "$0")/.."
build=build/release
picture=tests/data/line.png
expected="Where does each node run?"
model=$(tools/demo_model.sh)

echo "picture  $picture"
read_text=$($build/examples/read_line "$model" $picture 480)
echo "text     $read_text"
[ "$read_text" = "$expected" ] || { echo "demo: expected \"$expected\"" >&2; exit 1; }
echo
# The whole report is some hundred lines, one a node.
$build/gantry explain "$model" --image "x=$picture,size=480x48,mean=0.5,std=0.5,order=NCHW-BGR" >build/demo-report.txt
sed -n '1,30p' build/demo-report.txt
echo "... (all of it: build/demo-report.txt)"
