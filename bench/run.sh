#!/usr/bin/env bash
# Measures Gantry beside ONNX Runtime and OpenVINO on every model of the corpus and writes docs/benchmarks/NAME.md and NAME.svg.
#
#     bench/run.sh [--name NAME] [--threads "1 2"] [--seconds S] [--rounds N] [MODEL ...]
#
# make bench is this with its defaults: all models, 1 and 2 threads, 3 rounds of 2 s, NAME figures; about an hour on two cores, and
# 1.5 GB of models the first time. Each measurement is a process of its own and the engines take turns (the corpus's peers.py), so that
# what else the machine does hits all alike. Without the corpus Gantry is timed alone, on the demo's model, and no file is written.
# $GANTRY_BENCH_PYTHON: a Python with onnxruntime, openvino and numpy, in place of an own venv.
set -eu
cd "$(dirname "$0")/.."
corpus=${GANTRY_CORPUS:-../shared} venv=build/deps/bench gantry=${GANTRY_BUILD:-$PWD/build/release}/gantry
name=figures threads="1 2" seconds=2 rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    --name) name=$2 ;;
    --threads) threads=$2 ;;
    --seconds) seconds=$2 ;;
    --rounds) rounds=$2 ;;
    --*) sed -n '2,9p' "$0" >&2; exit 2 ;;
    *) break ;;
    esac
    shift 2
done

alone() {
    echo "bench: skipped: no corpus ($corpus/bench/peers.py; set GANTRY_CORPUS): Gantry alone, on the demo's model"
    local model
    model=$(tools/demo_model.sh)
    for t in $threads; do
        echo "-- $t thread(s)"
        "$gantry" bench "$model" --image x=tests/data/line.png,size=480x48,mean=0.5,std=0.5,order=NCHW-BGR --seconds "$seconds" --threads "$t"
    done
}

have_models() {
    local model
    [ $# -gt 0 ] || return 1
    for model; do
        [ -f "${GANTRY_MODELS:-$HOME/.cache/gantry-models}/$model/reference.json" ] || return 1
    done
}

[ -f "$corpus/bench/peers.py" ] || { alone; exit; }
have_models "$@" || tools/corpus.sh all_models
python=${GANTRY_BENCH_PYTHON:-$venv/bin/python}
if [ -z "${GANTRY_BENCH_PYTHON:-}" ] && [ ! -f $venv/complete ]; then
    python3 -m venv $venv
    $venv/bin/pip install -q --disable-pip-version-check onnxruntime openvino numpy
    touch $venv/complete
fi

results=()
mkdir -p build/bench docs/benchmarks
export PYTHONDONTWRITEBYTECODE=1
for t in $threads; do
    result=build/bench/$name-$t.json
    echo "bench: $t thread(s), log build/bench/$name-$t.log"
    "$python" "$corpus/bench/peers.py" --engines ort,ov --threads "$t" --seconds "$seconds" --rounds "$rounds" --json "$result" --engine \
        "gantry=$gantry bench {model} --inputs {inputs_npz} --seconds {seconds} --threads {threads} --outputs {out_npz} --json" \
        "$@" >"build/bench/$name-$t.log" 2>&1 || { tail -n 5 "build/bench/$name-$t.log" >&2; exit 1; }
    results+=("$result")
done
"$python" bench/plot.py "${results[@]}" >"docs/benchmarks/$name.svg"
"$python" bench/table.py --plot "$name.svg" "${results[@]}" >"docs/benchmarks/$name.md"
grep -A1 '^Geometric' "docs/benchmarks/$name.md"
echo "bench: docs/benchmarks/$name.md, docs/benchmarks/$name.svg"
