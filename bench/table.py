#!/usr/bin/env python3
"""Tables for docs/benchmarks from what the corpus's peers.py measured.

    bench/table.py RESULT.json [RESULT.json ...] > docs/benchmarks/NAME.md

Each RESULT.json is one call of peers.py with --json (one thread count). Ratios are of medians in one interleaved run on one machine;
"spread" is p90 over p10, the lowest and highest of all rounds. Memory is the peak of the whole process (the peers' hold Python and numpy).
"""
import json
import math
import platform
import sys

PEERS = ("ort", "ov")
TINY = ("tiny_add", "tiny_mlp", "ctrl_loop")


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())


def usable(row):
    return row and "error" not in row


def better(per, key):
    values = [per[p][key] for p in PEERS if usable(per.get(p))]
    return min(values) if values else None


def total_first(row):
    return row["create_ms"] + row["first_ms"]


def ratio_text(a, b):
    return "-" if not b else "%.2f" % (a / b)


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def print_table(data):
    print("\n## %d thread%s, rounds of %g s\n" % (data["threads"], "s" * (data["threads"] != 1), data["seconds"]))
    print("| model | Gantry ms (spread) | ONNX Runtime ms (spread) | OpenVINO f32 ms (spread) | to the better | create + first ms: Gantry / ORT / OV | to ORT "
          "| peak MB: Gantry / ORT / OV | to ORT |")
    print("|---|---|---|---|---|---|---|---|---|")
    speed, first, memory = [], [], []
    for model, per in data["merged"].items():
        g, ort, ov = per.get("gantry"), per.get("ort"), per.get("ov")
        if not usable(g):
            print("| %s | failed | | | | | | | |" % model)
            continue
        cell = lambda r: "%.3g (%.2f)" % (r["median_ms"], r["p90_ms"] / r["p10_ms"]) if usable(r) else "-"
        firsts = [total_first(r) if usable(r) else None for r in (g, ort, ov)]
        peaks = [r["maxrss_mb"] if usable(r) else None for r in (g, ort, ov)]
        best = better(per, "median_ms")
        if model not in TINY:
            speed += [g["median_ms"] / best] if best else []
            first += [firsts[0] / firsts[1]] if firsts[1] else []
            memory += [peaks[0] / peaks[1]] if peaks[1] else []
        show = lambda values: " / ".join("-" if v is None else "%.0f" % v for v in values)
        print("| %s | %s | %s | %s | %s | %s | %s | %s | %s |" % (model, cell(g), cell(ort), cell(ov), ratio_text(g["median_ms"], best), show(firsts),
                                                               ratio_text(firsts[0], firsts[1]), show(peaks), ratio_text(peaks[0], peaks[1])))
    print("\nGeometric means without %s: time to the better peer %.2f, create + first to ONNX Runtime %.2f, peak memory to ONNX Runtime %.2f."
          % (", ".join(TINY), mean(speed), mean(first), mean(memory)))


def main():
    print("# Gantry beside ONNX Runtime and OpenVINO\n")
    print("Made by bench/table.py from bench/run.sh. Machine: %s, shared with other work; processes of the three engines take turns, each starts afresh. "
          "All compute in float32 (OpenVINO with that hint). Ratios below 1 are in Gantry's favour; they hold for this machine and run." % cpu_name())
    for path in sys.argv[1:]:
        with open(path) as f:
            print_table(json.load(f))


if __name__ == "__main__":
    main()
