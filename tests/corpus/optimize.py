#!/usr/bin/env python3
"""gantry optimize on handed models and conformance cases: what is written is valid ONNX, ONNX Runtime computes the same from it, and so
does Gantry; optimizing the result again gives the same bytes.

    tests/corpus/optimize.py [NAME ...] [--long]

Without names: the small models and every 16th conformance case, with --long all of them. Five checks each: plain (--no-rewrites: outputs
are equal bit for bit), optimized (within tolerance), external (constants in a file of their own), fixed (inputs have the first case's
shapes), again (bytes). ONNX Runtime is asked
without its own optimizations; what it cannot run as handed is not compared with it. Ends with "N passed, N failed, N skipped".
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from corpus_python import BUILD, DATA, MODELS, SMALL_MODELS, load_npz, use_corpus_python  # noqa: E402

use_corpus_python()
import numpy as np  # noqa: E402
import onnx  # noqa: E402

import gantry_ctypes as gantry  # noqa: E402
from child import in_child  # noqa: E402

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

EVERY = 16
TOO_LARGE = 2 ** 31 - 1


class Unsupported(Exception):
    """Gantry cannot read the model, or no opset fits it: said with exit code 3 or 4, which other suites judge."""


def optimize(model, to, *options):
    command = [os.path.join(BUILD, "gantry"), "optimize", model, "-o", to, "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode in (3, 4):
        raise Unsupported(done.stderr.strip()[:300])
    if done.returncode:
        raise RuntimeError("%s: exit code %d: %s" % (options, done.returncode, done.stderr.strip()[:300]))
    return json.loads(done.stdout)


# ---------------------------------------------------------------- running
def run_onnxruntime(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return [dict(zip(names, session.run(names, f))) for f in feeds]


def run_gantry(path, feeds):
    runtime = gantry.Runtime(gantry.load(BUILD))
    session = gantry.Session(runtime, path, {"threads": 1})
    return [session.execute(f) for f in feeds]


def attempt(run, path, feeds):
    """Outputs, or None with the reason: what a runtime cannot run as handed says nothing about us."""
    try:
        return run(path, feeds), None
    except Exception as e:  # noqa: B902
        return None, "%s: %s" % (type(e).__name__, str(e)[:200])


# ---------------------------------------------------------------- comparing
def differences(got, want, exact):
    for k, (g, w) in enumerate(zip(got, want)):
        if list(g) != list(w):
            yield "outputs are %s, not %s" % (list(g), list(w))
        for name in w:
            why = difference(g[name], w[name], exact) if name in g else None
            if why:
                yield "case %d, %s: %s" % (k, name, why)


def difference(g, w, exact):
    if isinstance(w, list):  # a sequence
        each = [difference(a, b, exact) for a, b in zip(g, w)] if isinstance(g, list) else []
        return next(filter(None, each), None) if len(each) == len(w) else "another number of elements"
    g, w = np.asarray(g), np.asarray(w)
    if g.shape != w.shape or g.dtype != w.dtype:
        return "%s%s, not %s%s" % (g.dtype, list(g.shape), w.dtype, list(w.shape))
    if exact or w.dtype.kind not in "fc":
        same = g.tobytes() == w.tobytes() if w.dtype != object else list(g.ravel()) == list(w.ravel())
        quantized = not exact and w.dtype.kind in "iu" and w.dtype.itemsize == 1
        if same or (quantized and np.abs(g.astype(int) - w.astype(int)).max() <= 1):
            return None
        return "differs"
    wide = np.complex128 if w.dtype.kind == "c" else np.float64
    scale = np.abs(w.astype(wide))
    finite = scale[np.isfinite(scale)]
    slack = {2: 5e-3, 4: 2e-4}.get(w.dtype.itemsize, 1e-5)
    with np.errstate(invalid="ignore"):
        close = np.abs(g.astype(wide) - w.astype(wide)) <= slack * (1 + (finite.max() if finite.size else 0)) + 1e-3 * scale
    bad = ~(close | (g == w) | (np.isnan(g) & np.isnan(w)))
    return "%d of %d elements differ" % (bad.sum(), bad.size) if bad.any() else None


def checker_says(path, full):
    try:
        onnx.checker.check_model(path, full_check=full)
    except Exception as e:  # noqa: B902
        return "checker: %s" % str(e)[:300]
    return None


def check_file(path, full):
    """full: shapes are inferred and compared with what the file says of them."""
    why = checker_says(path, full)
    problems = [why] if why else []
    model = onnx.load(path, load_external_data=False)
    foreign = {n.domain for n in model.graph.node} - {i.domain for i in model.opset_import}
    if foreign or any(n.domain == "gantry" for n in model.graph.node):
        problems.append("domains %s" % sorted({n.domain for n in model.graph.node}))
    if model.producer_name != "gantry" or model.functions:
        problems.append("producer %s, %d functions" % (model.producer_name, len(model.functions)))
    return problems


def same_interface(path, original):
    """Names of inputs and outputs, and metadata."""
    a, b = onnx.load(path, load_external_data=False), onnx.load(original, load_external_data=False)
    old = b.ir_version < 4 and {t.name for t in b.graph.initializer} or set()
    problems = []
    if [v.name for v in a.graph.input] != [v.name for v in b.graph.input if v.name not in old]:
        problems.append("inputs are %s" % [v.name for v in a.graph.input])
    if [v.name for v in a.graph.output] != [v.name for v in b.graph.output]:
        problems.append("outputs are %s" % [v.name for v in a.graph.output])
    kept = {p.key: p.value for p in a.metadata_props}
    if any(kept.get(p.key) != p.value for p in b.metadata_props):
        problems.append("metadata is %s" % sorted(kept))
    return problems


# ---------------------------------------------------------------- one model
class Subject:
    def __init__(self, model, feeds, folder):
        self.model, self.feeds, self.folder = model, feeds, folder
        self.full = checker_says(model, True) is None
        self.ort, self.ort_why = attempt(run_onnxruntime, model, feeds) if onnxruntime and feeds else (None, "not asked")
        self.own, self.own_why = attempt(run_gantry, model, feeds) if feeds else (None, "not asked")

    def compare(self, path, exact, cases=None):
        problems = check_file(path, self.full) + same_interface(path, self.model)
        for name, run, want in (("onnxruntime", run_onnxruntime, self.ort), ("gantry", run_gantry, self.own)):
            if want is None:
                continue
            got, why = attempt(run, path, self.feeds[:cases])
            found = [why] if got is None else list(differences(got, want[:cases], exact and name == "onnxruntime"))
            problems += ["%s: %s" % (name, f) for f in found[:3]]
        return problems

    def path(self, name):
        return os.path.join(self.folder, name)

    def plain(self):
        optimize(self.model, self.path("plain.onnx"), "--no-rewrites")
        return self.compare(self.path("plain.onnx"), True)

    def optimized(self):
        report = optimize(self.model, self.path("optimized.onnx"))
        problems = self.compare(self.path("optimized.onnx"), False)
        grown = report["target"]["bytes"] - report["source"]["bytes"]
        folded = sum(r["nodes_removed"] for r in report["rules"])
        if grown > 65536 * (1 + folded) + 512 * report["target"]["nodes"]:
            problems.append("the file grew by %d bytes" % grown)
        return problems

    def external(self):
        os.makedirs(self.path("external"), exist_ok=True)
        to = os.path.join(self.folder, "external", "model.onnx")
        optimize(self.model, to, "--external-data", "weights.bin")
        return self.compare(to, False)

    def fixed(self):
        if not self.feeds:
            return []
        shapes = [a for name, v in self.feeds[0].items() for a in ("--shape", "%s=%s" % (name, ",".join(map(str, v.shape))))]
        optimize(self.model, self.path("fixed.onnx"), *shapes)
        return self.compare(self.path("fixed.onnx"), False, 1)

    def again(self):
        optimize(self.model, self.path("first.onnx"))
        optimize(self.path("first.onnx"), self.path("second.onnx"))
        optimize(self.path("plain.onnx"), self.path("plain2.onnx"), "--no-rewrites")
        problems = []
        for a, b in (("first.onnx", "second.onnx"), ("plain.onnx", "plain2.onnx"), ("first.onnx", "optimized.onnx")):
            with open(self.path(a), "rb") as f, open(self.path(b), "rb") as g:
                if f.read() != g.read():
                    problems.append("%s and %s differ" % (a, b))
        return problems


def check_subject(model, feeds):
    """Problems; notes on what was not compared begin with "not compared: "."""
    folder = tempfile.mkdtemp(prefix="gantry-optimize-")
    try:
        subject = Subject(model, feeds(), folder)
        notes = ["not compared: %s: %s" % pair for pair in (("onnxruntime", subject.ort_why), ("gantry", subject.own_why)) if pair[1]]
        return notes + ["%s: %s" % (check.__name__, p)
                        for check in (subject.plain, subject.optimized, subject.external, subject.fixed, subject.again) for p in check()]
    except Unsupported as e:
        return ["unsupported: %s" % e]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- the corpora
def model_feeds(folder):
    return lambda: [load_npz(path) for path in sorted(glob.glob(os.path.join(folder, "inputs*.npz")))]


def case_feeds(folder):
    def load():
        model = onnx.load(os.path.join(folder, "model.onnx"))
        initialized = {t.name for t in model.graph.initializer} if model.ir_version < 4 else set()
        inputs = [v for v in model.graph.input if v.name not in initialized]
        feeds = []
        for data in sorted(glob.glob(os.path.join(folder, "test_data_set_*"))):
            feed = {}
            for k, value in enumerate(inputs):
                path = os.path.join(data, "input_%d.pb" % k)
                if not os.path.exists(path) or not value.type.HasField("tensor_type"):
                    return []
                with open(path, "rb") as f:
                    feed[value.name] = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))
            feeds.append(feed)
        return feeds
    return load


def subjects(names, long):
    models = names or (sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob(MODELS + "/*/reference.json")) if long else SMALL_MODELS)
    for name in models:
        folder = os.path.join(MODELS, name)
        if os.path.exists(os.path.join(folder, "model.onnx")):
            yield name, os.path.join(folder, "model.onnx"), model_feeds(folder)
        elif not names:
            yield name, None, None
    cases = sorted(glob.glob(os.path.join(DATA, "conformance", "*", "model.onnx")))
    for k, path in enumerate(cases):
        name = os.path.basename(os.path.dirname(path))
        if name in names or (not names and (long or k % EVERY == 0)):
            yield name, path, case_feeds(os.path.dirname(path))


def main():
    names, long = [a for a in sys.argv[1:] if not a.startswith("--")], "--long" in sys.argv
    passed = failed = skipped = 0
    silent = {"onnxruntime": 0, "gantry": 0}
    for name, path, feeds in subjects(names, long):
        if path is None:
            print("skipped: %s is not in %s" % (name, MODELS))
            skipped += 1
            continue
        problems = in_child(lambda: check_subject(path, feeds))
        for note in [p for p in problems if p.startswith("not compared: ")]:
            problems.remove(note)
            silent[note.split(": ")[1]] += 1
            if names or long:
                print("%s: %s" % (name, note), flush=True)
        unsupported = [p for p in problems if p.startswith("unsupported: ")]
        passed, failed, skipped = passed + (not problems), failed + (len(problems) > len(unsupported)), skipped + bool(unsupported)
        for p in problems[:4]:
            print("%s: %s" % (name, p), flush=True)
    if not passed + failed + skipped:
        print("skipped: no corpus")
        skipped = 1
    print("could not run the original themselves: " + ", ".join("%s %d" % pair for pair in silent.items()))
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
