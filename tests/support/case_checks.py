"""The checks of a case, against reports: one function a kind, True or a text that says what was wrong.

`seen` holds what a case gave: reports (one a run, or the one of creation), outputs, device counters, see run_cases.py.
"""
import re

CHECKS = {}


def check(kind):
    def add(f):
        CHECKS[kind] = f
        return f
    return add


def any_of(value):
    return value if isinstance(value, list) else [value]


def lower(values):
    return [str(v).lower() for v in any_of(values)]


def rows_of(report, name):
    rows = [r for r in report["nodes"] if r["name"] == name]
    live = [r for r in rows if r["state"] != "removed"]
    return live or rows


def candidate(row, provider):
    return next((c for c in row.get("candidates", []) if c["provider"] == provider), None)


def has_detail(c, detail):
    """What the refusal has to show: op, types, actual, required, limit, tensor."""
    for key, want in detail.items():
        if key == "op":
            good = c.get("op") == want
        elif key == "types":
            good = [t.strip() for t in c.get("actual", "").split(",")] == want
        elif key == "tensor":
            good = want in c.get("operand", "")
        elif isinstance(want, (int, float)):
            number = c.get("limit") if key == "limit" else c.get("actual_number")
            good = number == want
        else:
            good = any(w in c.get(key, "") for w in any_of(want))
        if not good:
            return "the refusal by %s shows %s, not %s = %s" % (c["provider"], {k: v for k, v in c.items() if v}, key, want)
    return True


def node_is(row, ck):
    if row["state"] == "removed" or row.get("provider") != ck["provider"]:
        return "%s is %s on %s, not on %s" % (row["name"], row["state"], row.get("provider"), ck["provider"])
    if "reason" not in ck:
        return True
    c = candidate(row, ck["candidate"])
    if c is None or "reason" not in c:
        return "%s: %s did not refuse it: %s" % (row["name"], ck["candidate"], c)
    if c["reason"].lower() not in lower(ck["reason"]):
        return "%s: %s refused with %s, not %s" % (row["name"], ck["candidate"], c["reason"], ck["reason"])
    return has_detail(c, ck.get("detail", {}))


@check("node")
def _(ck, report, seen):
    rows = rows_of(report, ck["node"])
    if not rows:
        return "no row for node " + ck["node"]
    return next((r for r in (node_is(row, ck) for row in rows) if r is not True), True)


@check("all_nodes")
def _(ck, report, seen):
    rows = [r for r in report["nodes"] if r["op"] == ck["op"]]
    if not rows:
        return "no node of operator " + ck["op"]
    return next((r for r in (node_is(row, ck) for row in rows) if r is not True), True)


@check("reason_order")
def _(ck, report, seen):
    rows = rows_of(report, ck["node"])
    got = [c["provider"] for c in rows[0].get("candidates", []) if "reason" in c] if rows else []
    return got == ck["candidates"] or "refusals come from %s, not %s" % (got, ck["candidates"])


@check("reason_numbers")
def _(ck, report, seen):
    for row in rows_of(report, ck["node"]):
        for c in row.get("candidates", []):
            if all(isinstance(c.get(f), (int, float)) for f in ck["fields"]):
                return True
    return "no refusal of %s has the numbers %s" % (ck["node"], ck["fields"])


# ---------------------------------------------------------------- crossings
def edges(report, ck):
    kind, scope = ck.get("type", "device"), ck.get("scope", "all")
    return [e for e in report["boundaries"] if e["type"] == kind and scope in ("all", e["scope"])]


def number(value):
    return value if isinstance(value, (int, float)) else 0


def bounds(name, got, ck):
    if name in ck and got != ck[name]:
        return "%s: %s, not %s" % (name, got, ck[name])
    if name + "_max" in ck and got > ck[name + "_max"]:
        return "%s: %s is above %s" % (name, got, ck[name + "_max"])
    if name + "_min" in ck and got < ck[name + "_min"]:
        return "%s: %s is below %s" % (name, got, ck[name + "_min"])
    return True


@check("crossings")
def _(ck, report, seen):
    found = edges(report, ck)
    names = [e["tensor"] for e in found]
    if seen["series"]:
        runs = [r for r in seen["reports"]]
        found_all = [e for r in runs for e in edges(r, ck)]
    else:
        found_all = found
    for name, got in (("count", len(found)), ("executions", sum(number(e["executions"]) for e in found_all)),
                      ("bytes", sum(number(e["bytes"]) for e in found_all))):
        result = bounds(name, got, ck)
        if result is not True:
            return "%s; crossings are %s" % (result, [(e["tensor"], e["source"], e["target"], e["bytes"]) for e in found])
    if "tensors" in ck and sorted(names) != sorted(ck["tensors"]):
        return "tensors %s cross, not %s" % (names, ck["tensors"])
    wrong = set(names) & set(ck.get("without_tensors", []))
    return not wrong or "tensors %s cross" % sorted(wrong)


@check("crossing")
def _(ck, report, seen):
    found = [e for e in report["boundaries"] if e["tensor"] == ck["tensor"] and e["source"] == ck["source"] and e["target"] == ck["target"]]
    if not found:
        return "%s does not cross from %s to %s" % (ck["tensor"], ck["source"], ck["target"])
    for name in ("bytes", "executions"):
        if name in ck and sum(number(e[name]) for e in found) != ck[name]:
            return "%s of %s: %s, not %s" % (name, ck["tensor"], [e[name] for e in found], ck[name])
    return True


@check("counters_equal")
def _(ck, report, seen):
    key = {"crossings.executed": "executions", "crossings.bytes": "bytes"}[ck["report"]]
    said = sum(number(e[key]) for r in seen["reports"] for e in r["boundaries"] if e["type"] == "device")
    counted = sum(d[ck["device"]] for d in seen["counters"].values())
    return said == counted or "the report says %s = %s, the device counted %s" % (ck["report"], said, counted)


# ---------------------------------------------------------------- the plan's form
def placed(report):
    return [r for r in report["nodes"] if r["state"] == "placed"]


@check("partitions")
def _(ck, report, seen):
    found = [p for p in report["partitions"] if ck.get("provider") in (None, p["provider"])]
    return bounds("count", len(found), ck)


@check("islands")
def _(ck, report, seen):
    rows = [r for r in report["nodes"] if r["state"] in ("placed", "at_bind") and r.get("provider") == ck["provider"]]
    group = list(range(len(rows)))

    def find(k):
        while group[k] != k:
            k = group[k]
        return k
    makers = {}
    for k, r in enumerate(rows):
        for o in r["outputs"]:
            makers[o] = k
    for k, r in enumerate(rows):
        for i in r["inputs"]:
            if i in makers:
                group[find(k)] = find(makers[i])
    return bounds("count", len({find(k) for k in range(len(rows))}), ck)


@check("acyclic")
def _(ck, report, seen):
    made = {o: (p["graph"], p["id"]) for p in report["partitions"] for o in p["outputs"]}
    needs = {(p["graph"], p["id"]): {made[i] for i in p["inputs"] if i in made} for p in report["partitions"]}
    done = set()
    while needs:
        free = [k for k, v in needs.items() if v <= done]
        if not free:
            return "partitions %s wait for each other" % sorted(needs)
        for k in free:
            done.add(k)
            del needs[k]
    return True


@check("different_partition")
def _(ck, report, seen):
    where = [(r["graph"], r["partition"]) for n in ck["nodes"] for r in rows_of(report, n)]
    return len(set(where)) == len(ck["nodes"]) or "nodes %s are in partitions %s" % (ck["nodes"], where)


@check("output_owner")
def _(ck, report, seen):
    owners = [p["provider"] for p in report["partitions"] if ck["output"] in p["outputs"]]
    owner = owners[0] if owners else "none"
    return owner == ck["owner"] or "output %s belongs to %s, not %s" % (ck["output"], owner, ck["owner"])


@check("removed")
def _(ck, report, seen):
    for name in ck["nodes"]:
        rows = [r for r in report["nodes"] if r["name"] == name]
        if not rows or rows[0]["state"] != "removed":
            return "%s is not removed" % name
        if "reason" in ck and rows[0]["reason"] not in any_of(ck["reason"]):
            return "%s was removed by %s, not %s" % (name, rows[0]["reason"], ck["reason"])
    return True


@check("inserted")
def _(ck, report, seen):
    inserted = [r for r in placed(report) if r["op"] == ck["op"] and r.get("pass")]
    return len(inserted) <= ck["max"] or "%d nodes of %s were inserted" % (len(inserted), ck["op"])


@check("capture_blockers")
def _(ck, report, seen):
    found = [r["node"] for r in report["capture"]["blockers"]]
    return bounds("count", len(found), ck) if bounds("count", len(found), ck) is True else "%s keep it from being captured" % found


@check("numeric")
def _(ck, report, seen):
    rows = report["numeric_check"]["rows"]
    found = [r for r in rows if all(r[k] == ck[k] for k in ("tensor", "producer", "provider")) and r["finding"] in any_of(ck["finding"])]
    return bool(found) or "the numeric check blames %s" % [(r["tensor"], r["producer"], r["provider"], r["finding"]) for r in rows]


@check("per_run")
def _(ck, report, seen):
    if ck["what"] != "weight_conversions":
        return "counter %s is not known" % ck["what"]
    made = {o for r in report["nodes"] for o in r.get("outputs", [])}
    fed = {i for p in report["partitions"] for i in p["inputs"]}
    found = [r["node"] for r in placed(report) if r["op"] in ("Cast", "DequantizeLinear") and number(r.get("executions")) and
             not (made | fed).intersection(r["inputs"])]
    return len(found) <= ck["max"] or "weights are converted in every run by %s" % found


@check("note")
def _(ck, report, seen):
    if "when" in ck and not seen["condition"](ck["when"], report):
        return True
    found = [n for n in report["notes"] if n["code"] == ck["code"] and ck.get("node") in (None, n["node"])]
    return bool(found) or "no note %s for %s among %s" % (ck["code"], ck.get("node"), report["notes"])


@check("never")
def _(ck, report, seen):
    return not [n for n in report["notes"] if n["code"] == ck["code"]] or "there is a note " + ck["code"]


@check("estimate")
def _(ck, report, seen):
    a, b = report["totals"].get(ck["plan"] + "_us"), report["totals"].get(ck["not_above"] + "_us")
    if a is None or b is None:
        return "estimates of %s and %s: %s and %s" % (ck["plan"], ck["not_above"], a, b)
    return a <= b * (1 + 1e-9) or "plan %s is estimated at %s us, %s at %s us" % (ck["plan"], a, ck["not_above"], b)


@check("rewrite")
def _(ck, report, seen):
    if ck.get("when") == "output differs from exact" and seen["exact"]:
        return True
    if "fields" in ck:
        return "how many elements a rewrite changed is not counted yet"
    found = [r for r in report["rewrites"] if r["rule"] == ck["name"] and r["node"] == ck["node"]]
    # A fusion inside a provider is the provider's rewrite.
    found += [dict(f, state="applied" if f["applied"] else "skipped") for f in report["fusions"]
              if f["rule"] == ck["name"] and f["nodes"][:1] == [ck["node"]]]
    for r in found:
        if r["state"] in any_of(ck["state"]) and (r["state"] == "applied" or r["state"] == "applied_with_copy" or
                                                  "reason" not in ck or r["guard"] in any_of(ck["reason"])):
            return True
    return "rewrite %s at %s: %s" % (ck["name"], ck["node"], found or "no record")


def kernels_of(report, node):
    return [k for k in report["kernels"] if node in k["nodes"]]


@check("kernel")
def _(ck, report, seen):
    found = kernels_of(report, ck["node"])
    return any(k.get(ck["field"]) for k in found) or "no kernel of %s names its %s" % (ck["node"], ck["field"])


@check("accumulate")
def _(ck, report, seen):
    found = [k["accumulate"] for k in kernels_of(report, ck["node"])]
    enough = any_of(ck["type"]) + (["float64"] if "float32" in any_of(ck["type"]) else [])
    return any(a in enough for a in found) or "%s accumulates in %s" % (ck["node"], found)


@check("precision")
def _(ck, report, seen):
    found = [r.get("precision") for r in rows_of(report, ck["node"])]
    return ck["executed"] in found or "%s runs in %s, not %s" % (ck["node"], found, ck["executed"])


@check("verdict")
def _(ck, report, seen):
    if "when" in ck and not seen["condition"](ck["when"], report):
        return True
    lead = " ".join(line["text"] for line in report["summary"])
    missing = [w for w in ck["must_mention"] if w.lower() not in lead.lower()]
    return not missing or "the first lines don't mention %s: %s" % (missing, lead)


@check("plan_reuse")
def _(ck, report, seen):
    used = [[p["number"] for p in r["plans"]["rows"] if p["executions"]] for r in seen["reports"]]
    return used[ck["run"]] == used[ck["same_as"]] or "runs use plans %s" % used


@check("plan_diff")
def _(ck, report, seen):
    where = [{r["name"]: r.get("provider") for r in seen["reports"][k]["nodes"]} for k in ck["runs"]]
    moved = sorted(n for n in where[0] if where[0][n] != where[1].get(n))
    return moved == sorted(ck["nodes"]) or "nodes %s moved, not %s" % (moved, ck["nodes"])


@check("same_output_as")
def _(ck, report, seen):
    other = seen["outputs_of"](ck["case"])
    for k, (mine, theirs) in enumerate(zip(seen["outputs"], other)):
        for name in mine:
            if name not in theirs or mine[name].tobytes() != theirs[name].tobytes():
                return "run %d: output %s differs from that of %s" % (k, name, ck["case"])
    return len(other) == len(seen["outputs"]) or "%s has %d runs" % (ck["case"], len(other))


@check("executions")
def _(ck, report, seen):
    got = [r.get("executions") for r in rows_of(report, ck["node"])]
    return bounds("executions", sum(number(g) for g in got), ck)


# ---------------------------------------------------------------- time
def timed_row(report, name):
    if name.startswith("crossing:"):
        return next((e for e in report["boundaries"] if e["tensor"] == name[9:]), {})
    return next(iter(rows_of(report, name)), {})


@check("time")
def _(ck, report, seen):
    got = timed_row(report, ck["row"]).get({"device_us": "us", "launch_us": "launch_us"}[ck["field"]])
    if ck["value"] == "not_measured":
        return got == "not measured" or "%s of %s is %s" % (ck["field"], ck["row"], got)
    near = isinstance(got, (int, float)) and abs(got - ck["value"]) <= ck["tolerance"] * ck["value"]
    return near or "%s of %s is %s, not %s" % (ck["field"], ck["row"], got, ck["value"])


@check("nested")
def _(ck, report, seen):
    got = timed_row(report, ck["inner"]).get("inside")
    return got == ck["outer"] or "%s is inside %s" % (ck["inner"], got)


@check("classes_sum_to_wall")
def _(ck, report, seen):
    a = report["run"]["account"]
    if not isinstance(a["remainder_us"], (int, float)):
        return "the remainder is %s" % a["remainder_us"]
    total = sum(c["us"] for c in a["classes"])
    if abs(total + a["remainder_us"] - a["wall_us"]) > 1e-3:
        return "classes %s and remainder %s are not the wall time %s" % (total, a["remainder_us"], a["wall_us"])
    return abs(a["remainder_us"]) <= ck["tolerance"] * a["wall_us"] or "the remainder is %s of %s us" % (a["remainder_us"], a["wall_us"])


def condition(text, report):
    """Conditions of the cases: crossings_ms > node_ms(NODE); output != inf is taken as true."""
    m = re.fullmatch(r"crossings_ms > node_ms\((\w+)\)", text)
    if not m:
        return True
    crossing = sum(number(e["estimate_us"]) for e in report["boundaries"] if e["type"] == "device" and e["scope"] == "inner")
    rows = rows_of(report, m.group(1))
    own = [c["estimate_us"] for r in rows for c in r.get("candidates", []) if c["provider"] == r["provider"] and "estimate_us" in c]
    return crossing > (own[0] if own else 0)
