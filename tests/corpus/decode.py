#!/usr/bin/env python3
"""gpt2_decode token by token: the logits of step k equal those of one prefill over the same tokens, and memory stays flat.

    tests/corpus/decode.py [--long]

64 steps are compared; then it goes on, each step with the keys and values of the one before fed back, so each has shapes never seen. The
session keeps 64 plans: memory is looked at once that many are there, and from then on may grow by what the caller holds. Needs --long (500 MB).
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from corpus_python import BUILD, MODELS, use_corpus_python  # noqa: E402

use_corpus_python()
import numpy as np  # noqa: E402

import gantry_ctypes as gantry  # noqa: E402

COMPARED, PLANS, STEPS, LAYERS = 64, 64, 176, 12


def resident_mb():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def feeds(tokens, past, pasts):
    n = len(tokens)
    out = {"input_ids": np.array([tokens], np.int64), "attention_mask": np.ones((1, past + n), np.int64),
           "position_ids": np.arange(past, past + n, dtype=np.int64)[None]}
    for i in range(LAYERS):
        for kv in ("key", "value"):
            name = "past_key_values.%d.%s" % (i, kv)
            out[name] = pasts[i, kv] if pasts else np.zeros((1, 12, 0, 64), np.float32)
    return out


def pasts_of(outputs):
    return {(i, kv): outputs["present.%d.%s" % (i, kv)] for i in range(LAYERS) for kv in ("key", "value")}


def main():
    model = os.path.join(MODELS, "gpt2_decode", "model.onnx")
    if "--long" not in sys.argv or not os.path.exists(model):
        print("skipped: %s" % ("no " + model if "--long" in sys.argv else "a long test"))
        print("0 passed, 0 failed, 2 skipped")
        return 0
    session = gantry.Session(gantry.Runtime(gantry.load(BUILD)), model, {"threads": 2, "plan_cache": PLANS})
    tokens = [int(t) for t in np.random.default_rng(7).integers(0, 50257, STEPS)]
    prefill = session.execute(feeds(tokens[:COMPARED], 0, None))["logits"][0]
    failed, worst, pasts, memory = 0, 0.0, None, []
    for k, token in enumerate(tokens):
        got = session.execute(feeds([token], k, pasts))
        pasts = pasts_of(got)
        if k < COMPARED:
            worst = max(worst, float(np.abs(got["logits"][0, 0] - prefill[k]).max() / np.abs(prefill[k]).max()))
        memory.append(resident_mb())
    if worst > 1e-4:
        failed += 1
        print("step logits differ from the prefill's by %.3g of the largest" % worst)
    # Keys and values grow by 72 KiB a step; this script holds up to four copies at once, the run one, and freed pieces between them are not reused.
    first = PLANS + 16
    growth, own = memory[-1] - memory[first], (STEPS - first) * 72 / 1024
    if growth > 6 * own + 8:
        failed += 1
        print("memory grew by %.1f MB over the last %d steps; keys and values by %.1f MB" % (growth, STEPS - first, own))
    plans = session.report()["plans"]
    print("%d steps: largest difference %.2g; memory +%.1f MB until %d plans are kept, then +%.1f MB in %d steps; %d plans made"
          % (STEPS, worst, memory[first] - memory[4], PLANS, growth, STEPS - first, plans["made"]))
    print("%d passed, %d failed" % (2 - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
