#!/usr/bin/env bash
# Fills build/corpus (and the model cache) from the generators in $GANTRY_CORPUS; makes only what is missing.
#
#     tools/corpus.sh [PART ...]      parts: conformance cases hostile models (default: these) all_models
#
# Models go to $GANTRY_MODELS (default ~/.cache/gantry-models): about 130 MB, all_models about 1.5 GB.
# $GANTRY_CORPUS_PYTHON: a Python that has onnx, numpy and onnxruntime, in place of an own venv.
set -eu
cd "$(dirname "$0")/.."
corpus=$(cd "${GANTRY_CORPUS:-../shared}" 2>/dev/null && pwd) || { echo "corpus: no folder ${GANTRY_CORPUS:-../shared}" >&2; exit 77; }
out=$PWD/build/corpus venv=$PWD/build/deps/corpus
export PYTHONDONTWRITEBYTECODE=1 GANTRY_MODELS=${GANTRY_MODELS:-$HOME/.cache/gantry-models}
python=${GANTRY_CORPUS_PYTHON:-$venv/bin/python}

# The packages of a venv, installed once; the marker names them, so that another list installs again.
need_packages() {
    local marker
    [ -z "${GANTRY_CORPUS_PYTHON:-}" ] || return 0
    marker=$venv/has-$(echo "$*" | tr -c 'a-z0-9.\n' '-')
    [ ! -f "$marker" ] || return 0
    [ -x "$python" ] || python3 -m venv "$venv"
    "$python" -m pip install -q --disable-pip-version-check "$@"
    touch "$marker"
}

# once NAME COMMAND...: runs COMMAND, which fills $out/NAME.part, unless $out/NAME is there.
once() {
    local name=$1
    shift
    [ ! -d "$out/$name" ] || return 0
    echo "corpus: making $name" >&2
    rm -rf "$out/$name.part"
    "$@" >"$out/$name.log" 2>&1 || { tail -n 5 "$out/$name.log" >&2; echo "corpus: $name failed, see $out/$name.log" >&2; return 1; }
    mv "$out/$name.part" "$out/$name"
}

# The older cases lie in a Debian package; without it their names are missing from the folder.
make_conformance() {
    [ -d "$out/conformance" ] || tools/setup.sh corpus || true
    once conformance "$python" "$corpus/conformance/export.py" "$out/conformance.part" --older auto \
        --only-list "$corpus/conformance/handed.txt"
}

make_cases() {
    once cases "$python" "$corpus/cases/make.py" "$out/cases.part"
    once qcases "$python" "$corpus/cases/quant.py" "$out/qcases.part"
}

make_hostile() {
    once hostile "$python" "$corpus/hostile/make.py" "$out/hostile.part"
}

# make_named_models "FETCHED ..." "BUILT ..." "QUANTIZED ...": those of the named models that the cache does not have, then
# inputs and references of those that have none. The scripts do a named model again, so only missing ones are named.
make_named_models() {
    need_packages onnx==1.23.2 numpy onnxruntime
    (
        cd "$corpus/models"
        run_for_missing fetch.py model.onnx $1
        run_for_missing build.py model.onnx $2
        run_for_missing quantize_peer.py model.onnx ${3:-}
        run_for_missing inputs.py reference.json $1 $2 ${3:-}
    )
}

run_for_missing() {
    local script=$1 file=$2 name
    local -a names=()
    shift 2
    for name in "$@"; do
        [ -f "$GANTRY_MODELS/$name/$file" ] || names+=("$name")
    done
    [ ${#names[@]} -gt 0 ] || return 0
    echo "corpus: $script ${names[*]}" >&2
    "$python" "$script" "${names[@]}" >>"$out/models.log" 2>&1 && return 0
    tail -n 5 "$out/models.log" >&2
    echo "corpus: $script failed, see $out/models.log" >&2
    return 1
}

make_models() {
    make_named_models "ppocr_rec ppocr_cls silero_vad magika basic_pitch" "mobilenetv2 bert_l2 ctrl_loop tiny_add tiny_mlp"
}

make_all_models() {
    make_named_models "ppocr_det ppocr_rec ppocr_cls silero_vad magika ddddocr_common ddddocr_det minilm_int8 tashkeel_bilstm
            titler_encoder basic_pitch" \
        "resnet50 mobilenetv2 efficientnet_b0 bert_base bert_l2 vit_s16 gpt2_decode ctrl_loop tiny_add tiny_mlp" \
        "resnet50_qdq resnet50_qdq_s8 resnet50_qlinear mobilenetv2_qdq bert_base_qdq ppocr_det_qdq"
}

mkdir -p "$out"
exec 9>"$out/lock"
flock 9
need_packages onnx==1.23.2 numpy
[ $# -gt 0 ] || set -- conformance cases hostile models
for part in "$@"; do
    case $part in
    conformance | cases | hostile | models | all_models) "make_$part" ;;
    *) echo "corpus: no part $part" >&2; exit 2 ;;
    esac
done
