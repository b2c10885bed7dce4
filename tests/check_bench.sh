#!/usr/bin/env bash
# bench/table.py and bench/plot.py on made-up results: ratios, means, a model that failed, a peer that cannot.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "check_bench: $*" >&2; exit 1; }

python3 - "$out/r.json" <<'END'
import json, sys
row = lambda ms: {"create_ms": 10 * ms, "first_ms": ms, "median_ms": ms, "p10_ms": ms, "p90_ms": 2 * ms, "maxrss_mb": 10 * ms}
figures = {"net": {"gantry": 1.0, "ort": 2.0, "ov": 4.0}, "other": {"gantry": 2.0, "ort": 2.0},
           "net_qdq": {"gantry": 3.0, "ort": 4.0, "ov": 2.0}, "tiny_add": {"gantry": 0.001, "ort": 1.0, "ov": 1.0}}
merged = {m: {e: row(v) for e, v in per.items()} for m, per in figures.items()}
merged["other"]["ov"] = {"error": "cannot read it"}
merged["broken"] = {"gantry": {"error": "no provider | supports it"}, "ort": row(1.0), "ov": row(1.0)}
raw = [dict(row(v * (1 + k / 10)), model=m, engine=e, round=k, threads=1, load1=0.5)
       for m, per in figures.items() for e, v in per.items() for k in range(2)]
json.dump({"threads": 1, "seconds": 0.1, "tiny": False, "merged": merged, "raw": raw}, open(sys.argv[1], "w"))
END

bench/table.py --plot r.svg "$out/r.json" >"$out/r.md"
grep -q '^| net | 1 (2.00) | 2 (2.00) | 4 (2.00) | 0.50 (0.50-0.50) | 11 / 22 / 44 | 0.50 | 10 / 20 / 40 | 0.50 |' "$out/r.md" || fail "row of net"
grep -q '^| other | 2 (2.00) | 2 (2.00) | - | 1.00' "$out/r.md" || fail "a peer that cannot"
grep -q '^| broken | failed: no provider / supports it' "$out/r.md" || fail "a model that failed"
# sqrt(0.5 * 1) of net and other; net_qdq alone, against the better peer
grep -q 'float32 models, tiny ones left out: time to the better peer \*\*0.71\*\*' "$out/r.md" || fail "mean of the float32 models"
grep -q 'static INT8 models: time to the better peer \*\*1.50\*\*' "$out/r.md" || fail "mean of the INT8 models"
bench/plot.py "$out/r.json" >"$out/r.svg"
python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$out/r.svg" || fail "the picture is no XML"
for word in net other net_qdq tiny_add 'geometric mean' 'INT8, static'; do
    grep -q ">$word" "$out/r.svg" || fail "no $word in the picture"
done
