#!/usr/bin/env bash
# Measures Gantry beside ONNX Runtime and OpenVINO with the corpus's own script: same models, threads, interleaved processes.
#
#     bench/run.sh [MODEL ... and options of peers.py]      default: the models of the cache, one thread
set -eu
cd "$(dirname "$0")/.."
corpus=${GANTRY_CORPUS:-../shared} venv=build/deps/bench
[ -f "$corpus/bench/peers.py" ] || { echo "bench: no $corpus/bench/peers.py (set GANTRY_CORPUS)" >&2; exit 1; }
tools/corpus.sh models
if [ ! -f $venv/complete ]; then
    python3 -m venv $venv
    $venv/bin/pip install -q --disable-pip-version-check onnxruntime openvino numpy
    touch $venv/complete
fi
PYTHONDONTWRITEBYTECODE=1 exec $venv/bin/python "$corpus/bench/peers.py" \
    --engine "gantry=$PWD/build/release/gantry bench {model} --inputs {inputs_npz} --seconds {seconds} --threads {threads} --outputs {out_npz} --json" "$@"
