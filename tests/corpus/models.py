#!/usr/bin/env python3
"""The handed models against their references: every input case, at 1 and 2 threads, twice in a row, rewrites on and off.

    tests/corpus/models.py [MODEL ...] [--long]

Without names: the small models, with --long all of them. Models and references lie in $GANTRY_MODELS. Floats are compared within
atol of reference.json + 1e-3 |reference|, those of an INT8 model by the relative root mean square of their difference (one value rounded
the other way moves all after it, so no bound per element is tight) and a classifier's also by its top-1, everything else exactly. The
second run gives the bits of the first. No kernel may be oneDNN's `ref`. Ends with "N passed, N failed".
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from corpus_python import BUILD, MODELS, SMALL_MODELS, load_npz, use_corpus_python  # noqa: E402

use_corpus_python()
import numpy as np  # noqa: E402

import gantry_ctypes as gantry  # noqa: E402
from child import in_child  # noqa: E402

LARGE = ["mobilenetv2", "efficientnet_b0", "resnet50", "vit_s16", "bert_l2", "bert_base", "gpt2_decode", "ppocr_det", "ddddocr_common",
         "ddddocr_det"]
INT8 = ["resnet50_qdq", "resnet50_qdq_s8", "resnet50_qlinear", "mobilenetv2_qdq", "ppocr_det_qdq", "bert_base_qdq", "minilm_int8",
        "titler_encoder"]
INT8_CLASSIFIERS = ["resnet50_qdq", "resnet50_qdq_s8", "resnet50_qlinear", "mobilenetv2_qdq"]
SETTINGS = [{"threads": 1}, {"threads": 2}, {"threads": 1, "rewrites": "off"}]


def elements_differ(got, want, meta):
    diff = np.abs(got.astype(np.float64) - want)
    over = ~((diff <= meta["atol"] + 1e-3 * np.abs(want)) | (got == want) | (np.isnan(got) & np.isnan(want)))
    if over.any():
        return "%d of %d elements differ, largest difference %.3g, atol %.3g" % (over.sum(), over.size, np.nanmax(diff), meta["atol"])
    return None


def relative_rms(got, want):
    wide = want.astype(np.float64)
    return np.sqrt(np.mean((got - wide) ** 2) / max(np.mean(wide ** 2), 1e-24))


def int8_differs(got, want, meta):
    bound = max(3 * meta.get("rms_spread", 0), 0.03)
    rms = relative_rms(got, want)
    return None if rms <= bound else "relative RMS difference %.3g, at most %.3g" % (rms, bound)


def top1_differs(got, want, meta):
    same = np.array_equal(got.argmax(-1), want.argmax(-1))
    return int8_differs(got, want, meta) if same else "top-1 is %s, not %s" % (got.argmax(-1), want.argmax(-1))


def float_check(model):
    return top1_differs if model in INT8_CLASSIFIERS else int8_differs if model in INT8 else elements_differ


def compare(got, want, meta, floats_differ):
    for name, w in want.items():
        g = got.get(name)
        if g is None or g.shape != w.shape or g.dtype != w.dtype:
            return "%s is %s, not %s%s" % (name, None if g is None else "%s%s" % (g.dtype, list(g.shape)), w.dtype, list(w.shape))
        if w.dtype.kind == "f":
            why = floats_differ(g, w, meta[name])
        else:
            why = None if np.array_equal(g, w) else "differs"
        if why:
            return "%s: %s" % (name, why)
    return None


def reference_kernels(report):
    return ["%s of %s" % (k["kernel"], ",".join(k["nodes"])) for k in report["kernels"] if (k["kernel"] or "").startswith("ref")]


def run_setting(lib, folder, setting):
    """Problems of one model under one setting, over all its input cases; each case is run twice in a row."""
    runtime = gantry.Runtime(lib)
    problems = []
    with open(os.path.join(folder, "reference.json")) as f:
        cases = json.load(f)
    session = gantry.Session(runtime, os.path.join(folder, "model.onnx"), setting)
    for case, meta in cases.items():
        tail = "" if case == "default" else "-" + case
        feeds = load_npz(os.path.join(folder, "inputs%s.npz" % tail))
        want = load_npz(os.path.join(folder, "reference%s.npz" % tail))
        first, second = session.execute(feeds), session.execute(feeds)
        why = compare(first, want, meta, float_check(os.path.basename(folder)))
        if why:
            problems.append("%s: %s" % (case, why))
        problems += ["%s: %s has other bits in the second run" % (case, name) for name in first
                     if first[name].tobytes() != second[name].tobytes()]
    problems += ["kernel " + k for k in reference_kernels(session.report())]
    session.close()
    runtime.close()
    return problems


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("--")] or SMALL_MODELS + (LARGE + INT8 if "--long" in sys.argv else [])
    passed = failed = skipped = 0
    for name in names:
        folder = os.path.join(MODELS, name)
        if not os.path.exists(os.path.join(folder, "reference.json")):
            print("skipped: %s is not in %s" % (name, MODELS))
            skipped += 1
            continue
        for setting in SETTINGS:
            problems = in_child(lambda: run_setting(gantry.load(BUILD), folder, setting))
            passed, failed = passed + (not problems), failed + bool(problems)
            for p in problems[:4]:
                print("%s %s: %s" % (name, setting, p))
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
