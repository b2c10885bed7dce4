#!/usr/bin/env bash
# Fetches the model of the demo, PP-OCRv4's text recogniser (Apache-2.0), out of a pinned PyPI package into build/models.
# None of the package's code is run; the file is checked against its SHA-256. Prints the path.
set -eu
cd "$(dirname "$0")/.."
package=rapidocr-onnxruntime==1.4.4
member=rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx
hash=48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b
model=build/models/ppocr_rec.onnx

is_right() { [ -f "$1" ] && echo "$hash  $1" | sha256sum --check --status; }

fetch() {
    local cached=${GANTRY_MODELS:-$HOME/.cache/gantry-models}/ppocr_rec/model.onnx venv=build/deps/python
    if is_right "$cached"; then
        cp "$cached" $model
        return
    fi
    [ -x $venv/bin/pip ] || python3 -m venv $venv
    scratch=$(mktemp -d build/models/fetch.XXXXXX)
    $venv/bin/pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$scratch" $package
    python3 -m zipfile -e "$scratch"/*.whl "$scratch/wheel"
    is_right "$scratch/wheel/$member" || { echo "demo model: $member of $package has another SHA-256" >&2; exit 1; }
    mv "$scratch/wheel/$member" $model
}

mkdir -p build/models
scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT
is_right $model || fetch
echo $model
