#!/usr/bin/env python3
"""The handed models on an OpenCL device, with the CPU for what it refuses: results, reasons, and the account of copies.

    tests/corpus/devices.py [MODEL ...] [--long]

Without names: the small models, MobileNetV2 and two layers of BERT, with --long ResNet-50 and BERT-base too. Each runs with the
providers opencl,cpu, placed by priority and by cost, every input case twice. Results lie within the references' tolerance
(models.py) and the second run gives the bits of the first. Every node that the CPU got has the device's refusal with its code, what
it is about and what the choice cost; by priority only nodes that the device cannot run are refused. The ledger's sums agree with each other,
with the boundaries and with the sizes of what went in and came out. Skipped without an OpenCL device. Ends with "N passed, N failed".
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from corpus_python import BUILD, MODELS, SMALL_MODELS, load_npz, use_corpus_python  # noqa: E402

use_corpus_python()
import gantry_ctypes as gantry  # noqa: E402
from child import in_child  # noqa: E402
from models import compare, float_check  # noqa: E402

PLUGIN = os.path.join(BUILD, "libgantry_opencl.so")
REAL = ["mobilenetv2", "bert_l2"]
LONG = ["resnet50", "bert_base"]
PLANS = ["priority", "cost"]
ON_HOST_BY_NATURE = ("control_flow",)  # costs what its bodies cost


def no_device(lib):
    """Why there is no OpenCL device here; None when there is one."""
    runtime = gantry.Runtime(lib)
    try:
        runtime.load_provider(PLUGIN)
        return runtime.unavailable("opencl")
    except gantry.GantryError as e:
        return e.message
    finally:
        runtime.close()


# ---- the report ----


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fallback_problem(node, plan):
    """What the report fails to say about a node that the CPU got."""
    rows = {c["provider"]: c for c in node["candidates"]}
    refusal, host = rows.get("opencl"), rows.get("cpu")
    if not refusal or not refusal.get("reason"):
        return "no reason"
    if not refusal.get("operand") and not refusal.get("op"):
        return "%s without an operand" % refusal["reason"]
    if refusal.get("policy"):
        costs = [refusal.get(k) for k in ("estimate_here_us", "estimate_there_us", "boundary_us")]
        if plan == "priority":
            return "refused by policy (%s)" % refusal["reason"]
        return None if all(number(c) for c in costs) else "%s without its costs" % refusal["reason"]
    if refusal["reason"] in ON_HOST_BY_NATURE or (host and number(host.get("estimate_us"))):
        return None
    return "%s without a cost on the CPU" % refusal["reason"]


def fallback_problems(report, plan):
    problems = []
    for node in report["nodes"]:
        if node["state"] == "placed" and node["provider"] != "opencl":
            why = fallback_problem(node, plan)
            if why:
                problems.append("%s (%s): %s" % (node["name"], node["op"], why))
    return problems


def ledger_problems(report, feeds, results):
    ledger, boundaries = report["ledger"], report["totals"]["boundaries"]
    crossing = [r for r in ledger["rows"] if r["path"] != "inside"]
    device_rows = [r for r in report["boundaries"] if r["type"] == "device"]
    sums = {
        "rows of the ledger": (sum(r["bytes"] for r in ledger["rows"]), ledger["bytes"]),
        "crossing rows of the ledger": (sum(r["bytes"] for r in crossing), ledger["crossing_bytes"]),
        "crossing rows and devices": (ledger["crossing_bytes"], sum(d["bytes"] for d in ledger["devices"])),
        "copies of rows and devices": (sum(r["copies"] for r in crossing), sum(d["copies"] for d in ledger["devices"])),
        "ledger and boundaries": (ledger["crossing_bytes"], boundaries["copied_bytes"]),
        "rows of boundaries": (sum(r["bytes"] for r in device_rows), boundaries["bytes"]),
        "remainder of boundaries": (boundaries["remainder_bytes"], 0),
    }
    problems = ["%s: %s, not %s" % (name, got, want) for name, (got, want) in sums.items() if got != want]
    for row in crossing:
        array = {"input": feeds, "output": results}.get(row["cause"], {}).get(row["tensor"])
        if array is not None and row["bytes"] != row["copies"] * array.nbytes:
            problems.append("%s %s: %d copies of %d bytes are %d" % (row["cause"], row["tensor"], row["copies"], array.nbytes, row["bytes"]))
    return problems


# ---- a model ----


def run_cases(session, folder, plan):
    problems = []
    with open(os.path.join(folder, "reference.json")) as f:
        cases = json.load(f)
    for case, meta in cases.items():
        tail = "" if case == "default" else "-" + case
        feeds = load_npz(os.path.join(folder, "inputs%s.npz" % tail))
        want = load_npz(os.path.join(folder, "reference%s.npz" % tail))
        first, second = session.execute(feeds), session.execute(feeds)
        why = compare(first, want, meta, float_check(os.path.basename(folder)))
        problems += ["%s: %s" % (case, why)] if why else []
        problems += ["%s: %s has other bits in the second run" % (case, name) for name in first
                     if first[name].tobytes() != second[name].tobytes()]
        report = session.report()
        problems += ["%s: %s" % (case, p) for p in fallback_problems(report, plan) + ledger_problems(report, feeds, first)]
    return problems


def run_model(lib, folder, plan):
    runtime = gantry.Runtime(lib)
    runtime.load_provider(PLUGIN)
    session = gantry.Session(runtime, os.path.join(folder, "model.onnx"), {"providers": "opencl,cpu", "plan": plan, "threads": 2})
    problems = run_cases(session, folder, plan)
    if plan == "priority" and not any(n["provider"] == "opencl" and n["executions"] for n in session.report()["nodes"]):
        problems.append("no node ran on opencl")
    session.close()
    runtime.close()
    return problems


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("--")] or SMALL_MODELS + REAL + (LONG if "--long" in sys.argv else [])
    passed = failed = skipped = 0
    lib = gantry.load(BUILD)
    missing = in_child(lambda: [p for p in [no_device(lib)] if p])
    if missing:
        print("skipped: %s\n0 passed, 0 failed, %d skipped" % (missing[0], len(names)))
        return 0
    for name in names:
        folder = os.path.join(MODELS, name)
        if not os.path.exists(os.path.join(folder, "reference.json")):
            print("skipped: %s is not in %s" % (name, MODELS))
            skipped += 1
            continue
        for plan in PLANS:
            problems = in_child(lambda: run_model(lib, folder, plan))
            passed, failed = passed + (not problems), failed + bool(problems)
            for p in problems[:6]:
                print("%s %s: %s" % (name, plan, p))
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
