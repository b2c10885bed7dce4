#!/usr/bin/env python3
"""The report on handed models: it fits its schema, its sums close, and it answers the questions of its users on (opencl, cpu).

    tests/corpus/report.py [MODEL ...] [--long]

Q1 who got what, Q2 why not, Q3 boundaries, Q6 first run or every run, Q8 lineage, Q13 options. Ends with "N passed, N failed".
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from corpus_python import BUILD, MODELS, TOP, load_npz, use_corpus_python  # noqa: E402

use_corpus_python()
import gantry_ctypes as gantry  # noqa: E402
import json_schema  # noqa: E402
from child import in_child  # noqa: E402

SMALL = ["tiny_mlp", "ctrl_loop", "silero_vad", "ppocr_rec"]
LARGE = ["mobilenetv2", "resnet50", "bert_l2"]
OPENCL = os.path.join(BUILD, "libgantry_opencl.so")
PAIR = {"providers": "opencl,cpu"}
SETTINGS = [PAIR, dict(PAIR, plan="priority"), dict(PAIR, plan="priority", timing="events"), dict(PAIR, plan="priority", timing="fenced"),
            {"timing": "events"}]
RUNS = 5
REMAINDER = 0.05
GRACE_US = 300  # a preemption between two stamps is nobody's fault

with open(os.path.join(TOP, "docs", "report.schema.json")) as f:
    SCHEMA = json.load(f)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def need(condition, text, *values):
    return [] if condition else [text % values]


def text_problems(text):
    wide = [line for line in text.split("\n") if len(line) > 100]
    control = [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]
    return need(not wide, "a line above 100 columns: %s", wide[:1]) + need(not control, "control characters %r", control[:3])


# ---------------------------------------------------------------- the questions
def q1(report, setting):
    """Providers asked for and obtained; every node with its provider."""
    found = []
    rows = {p["name"]: p for p in report["providers"] if p["requested"]}
    found += need(list(rows) == setting.get("providers", "cpu").split(","), "requested providers are %s", list(rows))
    for p in rows.values():
        found += need(p["created"] and p["version"] and p["libraries"] and p["load_ms"] >= 0, "provider row %s", p)
        placed = [n for n in report["nodes"] if n["state"] == "placed" and n["provider"] == p["name"]]
        found += need(p["nodes_assigned"] == len(placed), "%s: %s assigned, %d rows", p["name"], p["nodes_assigned"], len(placed))
        found += need(p["nodes_executed"] == sum(n["executions"] > 0 for n in placed), "%s: executed %s", p["name"], p["nodes_executed"])
        found += need(p["nodes_supported"] >= p["nodes_assigned"], "%s supports fewer than it got", p["name"])
    found += need(report["totals"]["nodes"]["remainder"] == 0, "nodes: remainder %s", report["totals"]["nodes"])
    partitions = {(p["graph"], p["id"]) for p in report["partitions"]}
    for n in report["nodes"]:
        if n["state"] == "placed":
            found += need((n["graph"], n["partition"]) in partitions and n["precision"], "node %s has no partition", n["name"])
    return found


def q2(report, setting):
    """A reason for every provider above the one that got the node, policy apart from inability."""
    order = setting.get("providers", "cpu").split(",")
    found = []
    for n in report["nodes"]:
        if n["state"] != "placed":
            continue
        asked = [c["provider"] for c in n["candidates"]]
        found += need(asked == order, "%s: candidates %s", n["name"], asked)
        for c in n["candidates"][:order.index(n["provider"])]:
            found += need("reason" in c and c["group"] and c["policy"] == c["claimed"], "%s: no full reason in %s", n["name"], c)
            if c.get("reason") == "island_not_worth":
                numbers = [c.get(k) for k in ("estimate_here_us", "estimate_there_us", "boundary_us")]
                found += need(all(is_number(v) for v in numbers) and numbers[0] + numbers[2] > numbers[1], "%s: %s", n["name"], c)
    return found


def q3(report, setting):
    """Boundaries with ends, direction, bytes, executions, times; their total against the copies of the steps."""
    found = []
    names = {n["node"] for n in report["nodes"] if "node" in n}
    ran = {n["node"]: n["executions"] for n in report["nodes"] if n["state"] == "placed"}
    timed = setting.get("timing", "off") != "off"
    for b in report["boundaries"]:
        found += need(b["graph_input"] or b["producer"] in names, "%s: producer %s", b["tensor"], b["producer"])
        found += need(b["graph_output"] or b["consumers"], "%s has no consumer", b["tensor"])
        found += need(set(b["consumers"]) <= names, "%s: consumers %s", b["tensor"], b["consumers"])
        if b["type"] == "device":
            times = max([ran[n] for n in b["consumers"] + [b["producer"]] if n in ran])
            found += need(b["executions"] == times and b["bytes"] > 0, "%s: %s copies, %s bytes", b["tensor"], b["executions"], b["bytes"])
            found += need(is_number(b["us"]) if timed else b["us"] == "not measured", "%s took %s", b["tensor"], b["us"])
            found += need(b["synchronizing"] == (b["direction"] == "to_host") and isinstance(b["pinned"], bool), "%s: %s", b["tensor"], b)
    total = report["totals"]["boundaries"]
    device = [b for b in report["boundaries"] if b["type"] == "device"]
    found += need(total["bytes"] == sum(b["bytes"] for b in device) == total["copied_bytes"], "bytes: %s", total)
    found += need(total["executions"] == total["copies"] and total["remainder_bytes"] == 0, "copies: %s", total)
    found += need(is_number(total["share"]) or not device or report["totals"]["chosen_us"] is None, "no share: %s", total)
    return found


def q6(report, setting):
    """Creation and runs apart; both accounts close."""
    c, run = report["creation"], report["run"]
    found = need(abs(sum(p["ms"] for p in c["phases"]) + c["remainder_ms"] - c["total_ms"]) < 1e-3, "creation: %s", c)
    found += need(abs(c["remainder_ms"]) <= REMAINDER * c["total_ms"] + GRACE_US / 1e3, "creation's remainder: %s", c["remainder_ms"])
    found += need({"read", "simplify", "place", "compile"} <= {p["name"] for p in c["phases"]}, "phases: %s", c["phases"])
    loaded = {p["provider"] for p in c["before"]}
    found += need(set(setting.get("providers", "cpu").split(",")) <= loaded, "loaded before: %s", loaded)
    found += need(run["finished"] == RUNS and run["steady"]["count"] == RUNS - 2, "runs: %s", run["steady"])
    found += need(all(is_number(run[k]) for k in ("first_us", "second_us", "last_us")), "run times: %s", run)
    found += need(is_number(run["steady"]["p50_us"]), "steady: %s", run["steady"])
    lookups = run["plan_lookups"]
    executed = sum(p["executions_total"] for p in report["plans"]["rows"])
    found += need(sum(lookups.values()) == executed, "plan lookups %s, executions %s", lookups, executed)
    a = run["account"]
    if setting.get("timing", "off") == "off":
        return found + need(a["remainder_us"] == "not measured" and not a["classes"], "an account without timing: %s", a)
    rest = a["wall_us"] - sum(k["us"] for k in a["classes"])
    found += need(abs(rest - a["remainder_us"]) < 1e-2, "the run's account: %s", a)
    return found + need(abs(rest) <= REMAINDER * a["wall_us"] + GRACE_US, "the run's remainder: %s of %s us", rest, a["wall_us"])


def q8(report, setting):
    """Lineage: every executed node of the file is computed by a kernel or is a view; passes are named."""
    found = []
    names = {n["name"] for n in report["nodes"]}
    for k in report["kernels"]:
        found += need(set(k["nodes"]) <= names and len(k["nodes"]) == len(k["passes"]), "kernel %s of %s", k["kernel"], k["nodes"])
        found += need(bool(k["nodes"]) != bool(k["inserted_by"]), "kernel %s is of nobody", k["kernel"])
        found += need(k["kernel"] and k["isa"] and k["precision_in"] and k["precision_out"], "kernel row %s", k)
        found += need(is_number(k["us"]) if setting.get("timing", "off") != "off" else k["us"] == "not measured", "kernel %s took %s",
                      k["op"], k["us"])
    for n in report["nodes"]:
        if n["state"] == "removed":
            found += need(n["reason"] and n["pass"], "removed without a pass: %s", n)
        if n.get("inserted"):
            found += need(n["pass"], "inserted without a pass: %s", n)
    merged = [n for n in report["nodes"] if n["state"] == "placed" and n["pass"]]
    known = {r["rule"] for r in report["rewrites"]}
    return found + need(not merged or known, "nodes of passes %s, but no rewrite is listed", {n["pass"] for n in merged})


def q13(report, setting):
    """Options asked for and effective, versions, threads and where the number comes from, devices."""
    rows = {o["key"]: o for o in report["options"]}
    found = []
    for key, value in setting.items():
        found += need(rows[key]["asked"] == value and rows[key]["effective"] == value and rows[key]["origin"] == "user", "option %s", rows[key])
    found += need(rows["threads"]["origin"] == "mask" and int(rows["threads"]["effective"]) >= 1, "threads: %s", rows["threads"])
    cpu = next(p for p in report["providers"] if p["name"] == "cpu")
    found += need("oneDNN" in cpu["libraries"] and "OpenBLAS" in cpu["libraries"] and cpu["fingerprint"], "libraries: %s", cpu)
    return found + need(all(d["device"] for d in report["domains"]), "domains: %s", report["domains"])


QUESTIONS = [q1, q2, q3, q6, q8, q13]


# ---------------------------------------------------------------- running
def examine(folder, setting):
    runtime = gantry.Runtime(gantry.load(BUILD))
    if "opencl" in setting.get("providers", ""):
        runtime.load_provider(OPENCL)
    session = gantry.Session(runtime, os.path.join(folder, "model.onnx"), setting)
    feeds = load_npz(os.path.join(folder, "inputs.npz"))
    problems = ["at creation: " + p for p in json_schema.problems(session.created, SCHEMA)]
    for _ in range(RUNS):
        session.execute(feeds)
    report = session.report()
    problems += json_schema.problems(report, SCHEMA) + text_problems(session.report(text=True))
    if not problems:
        for question in QUESTIONS:
            problems += ["%s: %s" % (question.__name__, p) for p in question(report, setting)]
    session.close()
    runtime.close()
    return problems


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("--")] or SMALL + (LARGE if "--long" in sys.argv else [])
    passed = failed = skipped = 0
    for name in names:
        folder = os.path.join(MODELS, name)
        for setting in SETTINGS:
            if not os.path.exists(os.path.join(folder, "inputs.npz")) or ("providers" in setting and not os.path.exists(OPENCL)):
                skipped += 1
                continue
            problems = in_child(lambda: examine(folder, setting))
            passed, failed = passed + (not problems), failed + bool(problems)
            for p in problems[:4]:
                print("%s %s: %s" % (name, setting, p[:400]))
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
