#!/usr/bin/env python3
"""Tables for docs/benchmarks from what the corpus's peers.py measured.

    bench/table.py [--plot FILE.svg] RESULT.json [RESULT.json ...] > docs/benchmarks/NAME.md

Each RESULT.json is one call of peers.py with --json (one thread count).
"""
import argparse
import importlib.metadata
import os
import platform
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from results import KINDS, PEERS, PEER_NAMES, better, geometric_mean, kind_of, load, ratio, round_ratios, usable  # noqa: E402

HEAD = """# Gantry beside ONNX Runtime and OpenVINO

Made by `make bench` (bench/run.sh). %s

- Every figure is the median of %d rounds of %g s. Each round of each engine is a process of its own; engines take turns on one model.
- *spread*: the highest p90 over the lowest p10 of all rounds. Where it is far above 1 the machine did something else as well.
- *to the better*: Gantry's time over that of the faster peer, and in brackets the lowest and highest round-by-round ratio to it.
- *create + first*: creating the session and its first run. *peak*: the largest resident size of the whole process as the kernel counts it
  (ru_maxrss), read from outside for all three; about 50 MB of a peer's are Python and numpy.
- *difference*: the largest of any output from the reference (ONNX Runtime without optimisations), over the largest reference value.
- float32 models are computed in float32 by all (OpenVINO with that precision hint). Ratios below 1 are in Gantry's favour.
"""


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?"


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "?"


def machine(results):
    loads = sorted(r["load1"] for data in results for r in data["raw"] if "load1" in r) or [0]
    cpus = len(os.sched_getaffinity(0))
    busy = " **It was busy with other work: read ratios, not times.**" if loads[len(loads) // 2] > cpus + 1 else ""
    return ("Machine: %s, %d CPUs; load average %.1f to %.1f while it measured.%s Gantry at %s, onnxruntime %s, openvino %s."
            % (cpu_name(), cpus, loads[0], loads[-1], busy, commit(), version("onnxruntime"), version("openvino")))


def text(value, form="%.2f"):
    return "-" if value is None else form % value


def time_cell(row):
    return "%.3g (%.2f)" % (row["median_ms"], row["p90_ms"] / row["p10_ms"]) if usable(row) else "-"


def slashes(rows, value):
    return " / ".join("%.0f" % value(r) if usable(r) else "-" for r in rows)


def first_ms(row):
    return row["create_ms"] + row["first_ms"]


def better_cell(data, model, per):
    best = better(per)
    if not best:
        return "-"
    peer = next(p for p in PEERS if usable(per.get(p)) and per[p]["median_ms"] == best)
    rounds = round_ratios(data, model, peer)
    return "%.2f (%.2f-%.2f)" % (per["gantry"]["median_ms"] / best, rounds[0], rounds[-1])


def reason(error):
    """An error without the path of the file, as short as a cell."""
    return re.sub(r"/\S*/(?=[^/\s]*\.onnx)", "", error).replace("|", "/")[:80]


def model_row(data, model, per):
    rows = [per.get(e) for e in ("gantry",) + PEERS]
    if not usable(rows[0]):
        return "| %s | failed: %s | %s | %s | | | | | | |" % (model, reason((rows[0] or {}).get("error", "not run")),
                                                           time_cell(rows[1]), time_cell(rows[2]))
    ort = rows[1] if usable(rows[1]) else None
    return "| %s |" % " | ".join(
        [model] + [time_cell(r) for r in rows] +
        [better_cell(data, model, per), slashes(rows, first_ms), text(ratio(first_ms(rows[0]), ort and first_ms(ort))),
         slashes(rows, lambda r: r["maxrss_mb"]), text(ratio(rows[0]["maxrss_mb"], ort and ort["maxrss_mb"])),
         text(rows[0].get("rel_diff"), "%.1g") if "rel_diff" in rows[0] else rows[0].get("note", "-")])


def means(models):
    """(time to the better, to each peer, create + first to ONNX Runtime, peak to ONNX Runtime) over models that have both."""
    good = [per for per in models.values() if usable(per.get("gantry"))]
    pairs = {p: [(per["gantry"], per[p]) for per in good if usable(per.get(p))] for p in PEERS}
    speed = [ratio(per["gantry"]["median_ms"], better(per)) for per in good]
    return (geometric_mean(speed), [geometric_mean([g["median_ms"] / r["median_ms"] for g, r in pairs[p]]) for p in PEERS],
            geometric_mean([first_ms(g) / first_ms(r) for g, r in pairs["ort"]]),
            geometric_mean([g["maxrss_mb"] / r["maxrss_mb"] for g, r in pairs["ort"]]))


def print_kind(data, heading, over, models):
    print("\n### %s, %d thread%s\n" % (heading, data["threads"], "s" * (data["threads"] != 1)))
    print("| model | Gantry ms (spread) | ONNX Runtime ms (spread) | OpenVINO ms (spread) | to the better | create + first ms: Gantry / ORT / OV "
          "| to ORT | peak MB: Gantry / ORT / OV | to ORT | difference |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model, per in models.items():
        print(model_row(data, model, per))
    if over:
        best, each, first, peak = means(models)
        print("\nGeometric means over %s: time to the better peer **%s** (to %s), create + first to ONNX Runtime %s, peak memory to ONNX "
              "Runtime %s." % (over, text(best), ", ".join("%s %s" % (PEER_NAMES[p], text(v)) for p, v in zip(PEERS, each)), text(first),
                               text(peak)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot")
    parser.add_argument("results", nargs="+")
    args = parser.parse_args()
    results = [load(path) for path in args.results]
    rounds = 1 + max(r["round"] for data in results for r in data["raw"])
    print(HEAD % (machine(results), rounds, results[0]["seconds"]), end="")
    if args.plot:
        print("\n![Time of a run over that of each peer, by model](%s)" % args.plot)
    for key, heading, over in KINDS:
        for data in results:
            models = {m: per for m, per in data["merged"].items() if kind_of(m) == key}
            if models:
                print_kind(data, heading, over, models)


if __name__ == "__main__":
    main()
