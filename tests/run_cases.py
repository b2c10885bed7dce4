#!/usr/bin/env python3
"""Run a folder of cases: models, exact results, and what the placement report must say.

    tests/run_cases.py DIR [--only REGEX] [--build build/release] [--opencl]

DIR has one folder a case with case.json (the README beside the generator describes it). Each case is one session with one run, its
runs in order; then its checks are held against the reports. With --opencl the cases whose fake device only takes some operators, and
places by priority, run on an OpenCL device in its place; it counts nothing, so checks of counters are left out. Ends with "N passed, N failed".
"""
import argparse
import json
import os
import re
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from corpus_python import use_corpus_python  # noqa: E402

use_corpus_python()
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

import gantry_ctypes as gantry  # noqa: E402
from case_checks import CHECKS, condition  # noqa: E402
from child import in_child  # noqa: E402

COUNTERS = ("copies", "copied_bytes", "inside_copies", "inside_bytes", "runs", "kernels", "syncs", "allocations", "live_bytes",
            "uploaded_bytes", "compiles", "reshapes", "peer_copies", "peer_bytes", "pinned_copies", "pinned_bytes")


def read_tensor(path):
    with open(path, "rb") as f:
        return numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))


def differs(got, want, how):
    """None, or why got is not what was wanted."""
    if got is None:
        return "is missing"
    if got.dtype != want.dtype or got.shape != want.shape:
        return "is %s%s, not %s%s" % (got.dtype, list(got.shape), want.dtype, list(want.shape))
    if how["kind"] == "reference":
        return None
    if how["kind"] == "exact":
        good = (got == want) | (np.isnan(got) & np.isnan(want)) if got.dtype.kind == "f" else got == want
    elif how["kind"] == "close":
        with np.errstate(all="ignore"):
            good = np.abs(got.astype(np.float64) - want) <= how.get("abs", 0) + how.get("rel", 0) * np.abs(want.astype(np.float64))
            good |= got == want
            if got.dtype.kind == "f":
                good |= np.isnan(got) & np.isnan(want)
    else:
        good = np.abs(got.astype(np.float64) - want.astype(np.float64)) <= how["max"]
    if np.all(good):
        return None
    k = np.unravel_index(int(np.argmin(good)), good.shape) if got.ndim else ()
    return "differs in %d of %d elements, first at %s: %s, not %s" % (got.size - int(np.sum(good)), got.size, list(map(int, k)), got[k], want[k])


def options_of(case):
    """Session options from the words of a case."""
    given = case.get("options", {})
    out = {"providers": ",".join(case["providers"])}
    words = {"plan": lambda v: {"plan": v}, "rewrites": lambda v: {"rewrites": "on" if v else "off"},
             "exact": lambda v: {"exact": "on" if v else "off"}, "fold": lambda v: {"fold": "on" if v else "off"},
             "pin": lambda v: {"pin." + k: p for k, p in v.items()}, "bind": lambda v: {"bind." + k: d for k, d in v.items()},
             "cpu_types": lambda v: {"cpu.disable_types": ",".join(k for k, on in v.items() if not on)},
             "timing": lambda v: {"timing": v}, "numeric_check": lambda v: {"numeric_check": "on" if v else "off"},
             "feed_back": lambda v: {}}
    for key, value in given.items():
        if key not in words:
            raise ValueError("option %s of the case is not known" % key)
        out.update(words[key](value))
    return out


def read_counters(path):
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as f:
        raw = f.read()
    rows = {}
    for k in range(int.from_bytes(raw[8:16], "little")):
        record = raw[16 + 192 * k:16 + 192 * (k + 1)]
        rows[record[:64].rstrip(b"\0").decode()] = dict(zip(COUNTERS, struct.unpack("<16Q", record[64:192])))
    return rows


def words_missing(words, text):
    text = text.lower()
    return [w for w in words if not any(str(x).lower() in text for x in (w if isinstance(w, list) else [w]))]


# ---- on an OpenCL device ----

OPENCL_DOMAIN = "opencl:0"


def operators(graph):
    for node in graph.node:
        yield node.op_type
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from operators(a.g)


def is_portable(case):
    """Whether the fake device stands for any device: it has operators, and nothing that only a fake one has."""
    device = case.get("fake_device")
    return (device and not case.get("more_fake_devices") and case.get("options", {}).get("plan") == "priority"
            and set(device) <= {"name", "ops", "transfer_gbps", "latency_us", "host_inputs"})


def renamed(value, name, by):
    if isinstance(value, dict):
        return {k: renamed(v, name, by) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(v, name, by) for v in value]
    return by if value == name else value


def on_opencl(case, folder):
    """The case with the OpenCL device in the fake one's place."""
    device = case["fake_device"]
    model = onnx.load(os.path.join(folder, case["model"]), load_external_data=False)
    bind = renamed(case.get("options", {}).get("bind", {}), device["name"], OPENCL_DOMAIN)
    out = renamed({k: v for k, v in case.items() if k != "fake_device"}, device["name"], "opencl")
    out["opencl"] = sorted(set(operators(model.graph)) - set(device["ops"]))
    out["checks"] = [c for c in out["checks"] if c["kind"] != "counters_equal"]
    for c in out["checks"]:
        if "reason" in c: # it need not have a kernel for what policy keeps on the host, and does not say which types it would take
            c["reason"] = c["reason"] + ["no_kernel"]
            c.get("detail", {}).pop("types", None)
    if bind:
        out["options"]["bind"] = bind
    return out


class Case:
    def __init__(self, folder, case, lib, build):
        self.folder, self.case, self.lib, self.build = os.path.abspath(folder), case, lib, build
        self.problems = []
        self.seen = {"reports": [], "outputs": [], "counters": {}, "condition": condition, "outputs_of": self.outputs_of, "exact": True,
                     "series": "feed_back" in case.get("options", {})}

    def outputs_of(self, name):
        """What another case of the same folder gives, its checks left out."""
        folder = os.path.join(os.path.dirname(self.folder), name)
        with open(os.path.join(folder, "case.json")) as f:
            case = json.load(f)
        other = Case(folder, dict(case, checks=[]), self.lib, self.build)
        other.run()
        return other.seen["outputs"]

    def fail(self, text):
        self.problems.append(text)

    def path(self, name):
        return os.path.join(self.folder, name)

    def load_devices(self, runtime, scratch):
        if "opencl" in self.case:
            runtime.load_provider(os.path.join(self.build, "libgantry_opencl.so"))
        devices = [d for d in [self.case.get("fake_device")] + self.case.get("more_fake_devices", []) if d]
        self.counters_file = os.path.join(scratch, "counters")
        if devices:
            runtime.load_provider(os.path.join(self.build, "tests", "libgantry_fake.so"),
                                  json.dumps({"devices": devices, "counters_file": self.counters_file}))

    def open(self, runtime, scratch):
        options = options_of(self.case)
        if self.case.get("opencl"):
            options["opencl.exclude"] = ",".join(self.case["opencl"])
        load = self.case.get("load", {"from": "file"})
        if load["from"] == "memory":
            if "base" in load:
                options["base"] = self.path(load["base"])
            with open(self.path(self.case["model"]), "rb") as f:
                return gantry.Session(runtime, f.read(), options)
        if load.get("working_directory") == "elsewhere":
            os.chdir(scratch)
        return gantry.Session(runtime, self.path(self.case["model"]), options)

    def judge_error(self, error, expected, where):
        if expected is None:
            return self.fail("%s: %s" % (where, error))
        text = "%s %s" % (error.message, error.node)
        if error.stage != expected["stage"]:
            self.fail("%s: the error's stage is %s, not %s" % (where, error.stage, expected["stage"]))
        missing = words_missing(expected.get("must_mention", []), text)
        if missing:
            self.fail("%s: the error does not mention %s: %s" % (where, missing, text))
        missing = words_missing(expected.get("should_mention", []), text)
        if missing:
            self.fail("%s: the error should mention %s: %s" % (where, missing, text))

    def judge_outputs(self, got, run, where):
        for o in run.get("outputs", []):
            want = read_tensor(self.path(o["file"]))
            why = differs(got.get(o["name"]), want, o["compare"])
            self.seen["exact"] &= differs(got.get(o["name"]), want, {"kind": "exact"}) is None
            if why and "or_file" in o:
                why = differs(got.get(o["name"]), read_tensor(self.path(o["or_file"])), o["compare"])
            if why:
                self.fail("%s: output %s %s" % (where, o["name"], why))

    def one_run(self, session, k, run):
        feeds = {i["name"]: read_tensor(self.path(i["file"])) for i in run["inputs"]}
        expected = run.get("error")
        if self.case.get("options", {}).get("bind"):
            return self.run_on_device(session, k, run, feeds)
        times = self.case.get("options", {}).get("feed_back", {}).get("runs", 1)
        try:
            for _ in range(times):
                got = session.execute(feeds)
                self.seen["reports"].append(session.report())
                if times > 1:
                    back = self.case["options"]["feed_back"]
                    feeds[back["input"]] = got[back["output"]]
        except gantry.GantryError as e:
            return self.judge_error(e, expected if expected and expected["stage"] == "run" else None, "run %d" % k)
        if expected and not expected.get("optional"):
            return self.fail("run %d succeeded; an error was expected" % k)
        self.seen["outputs"].append(got)
        self.judge_outputs(got, run, "run %d" % k)

    def run_on_device(self, session, k, run, feeds):
        """Input and output stay in a device's memory and swap places; what the runner itself copies is not the session's doing."""
        back, bind = self.case["options"]["feed_back"], self.case["options"]["bind"]
        domain, like = bind[back["input"]], feeds[back["input"]]
        runtime = session.runtime
        buffers = [runtime.device_buffer(domain, like), runtime.device_buffer(domain, like)]
        before = read_counters(self.counters_file)
        for turn in range(back["runs"]):
            session.bind_device(back["input"], domain, buffers[turn % 2], like)
            session.bind_device(back["output"], domain, buffers[(turn + 1) % 2], like, output=True)
            runtime.check(session.lib.gantry_run_execute(session.run, runtime.error()))
            self.seen["reports"].append(session.report())
        self.device_counters = (before, read_counters(self.counters_file))
        got = {back["output"]: runtime.read_buffer(domain, buffers[back["runs"] % 2], like)}
        for b in buffers:
            runtime.free_buffer(domain, b)
        self.judge_outputs(got, run, "run %d" % k)

    def check_ledger(self):
        """What the devices counted is what the ledgers of all runs say; a numeric check copies beside them."""
        if any("error" in run for run in self.case["runs"]) or self.case.get("options", {}).get("numeric_check"):
            return
        pairs = (("copies", "copies"), ("bytes", "copied_bytes"), ("peer_copies", "peer_copies"), ("peer_bytes", "peer_bytes"),
                 ("inside_copies", "inside_copies"), ("inside_bytes", "inside_bytes"))
        for domain, counted in self.seen["counters"].items():
            rows = [d for r in self.seen["reports"] for d in r["ledger"]["devices"] if d["domain"] == domain]
            for key, counter in pairs:
                said = sum(row[key] for row in rows)
                if said != counted[counter]:
                    self.fail("the ledger says %s of %s is %d; the device counted %d" % (key, domain, said, counted[counter]))

    def run_checks(self, created):
        for ck in self.case.get("checks", []):
            if ck["kind"] not in CHECKS:
                self.fail("check %s is not implemented" % ck["kind"])
                continue
            reports = self.seen["reports"] or [created]
            if "run" in ck and ck["run"] < len(reports):
                reports = [reports[ck["run"]]]
            for report in reports if not self.seen["series"] else reports[-1:]:
                result = CHECKS[ck["kind"]](ck, report, self.seen)
                if result is not True:
                    self.fail("check %s: %s" % (ck["kind"], result))
                    break

    def play(self, runtime, scratch):
        self.load_devices(runtime, scratch)
        runs = self.case["runs"]
        try:
            session = self.open(runtime, scratch)
        except gantry.GantryError as e:
            expected = next((r["error"] for r in runs if r.get("error", {}).get("stage") == "load"), None)
            return self.judge_error(e, expected, "creation")
        before = read_counters(self.counters_file)
        try:
            expected = next((r["error"] for r in runs if r.get("error", {}).get("stage") == "load"), None)
            if expected and not expected.get("optional"):
                return self.fail("the session was created; an error was expected")
            for k, run in enumerate(runs):
                self.one_run(session, k, run)
            after = read_counters(self.counters_file)
            before, after = getattr(self, "device_counters", (before, after))
            self.seen["counters"] = {d: {c: after[d][c] - before.get(d, {}).get(c, 0) for c in after[d]} for d in after}
            self.check_ledger()
            self.run_checks(session.created)
        finally:
            session.close()

    def run(self):
        home = os.getcwd()
        with tempfile.TemporaryDirectory(prefix="gantry-case-") as scratch:
            runtime = gantry.Runtime(self.lib)
            try:
                self.play(runtime, scratch)
            finally:
                os.chdir(home)
                runtime.close()
        return self.problems


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("cases")
    ap.add_argument("--only", metavar="REGEX", default="")
    ap.add_argument("--opencl", action="store_true")
    ap.add_argument("--build", default=os.path.join(os.path.dirname(HERE), "build", "release"))
    args = ap.parse_args()
    build = os.path.abspath(args.build)
    passed = failed = 0
    for name in sorted(os.listdir(args.cases)):
        path = os.path.join(args.cases, name, "case.json")
        if not re.search(args.only, name) or not os.path.isfile(path):
            continue
        with open(path) as f:
            case = json.load(f)
        if "runs" not in case or (args.opencl and not is_portable(case)):
            continue
        if args.opencl:
            case = on_opencl(case, os.path.join(args.cases, name))
        problems = in_child(lambda: Case(os.path.join(args.cases, name), case, gantry.load(build), build).run())
        passed, failed = passed + (not problems), failed + bool(problems)
        for p in problems:
            print("%s: %s" % (name, p))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
