#!/usr/bin/env python3
"""Run a folder of hostile files: none may end the process by a signal, hang, or take memory without bound, and errors say what
and where.

    tests/run_hostile.py DIR [--only REGEX] [--build build/release] [--big]

DIR has one folder a file with expect.json (the README beside the generator describes it); --big runs those made on demand too.
Every file is tried in a process of its own, forked before any session ran, with the options memory_limit and deadline_ms that
expect.json asks for, and what failed is listed with the reason. A failed run is tried once more with the same session. Ends with
"N passed, N failed".

With a build that has AddressSanitizer (--build build/asan; make asan-hostile) what counts is how each file ends: a sanitizer's
report is a failure, time and resident memory are not measured. The library of the sanitizer is loaded before Python's own.
"""
import argparse
import ctypes
import glob
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from corpus_python import use_corpus_python  # noqa: E402

use_corpus_python()
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

import gantry_ctypes as gantry  # noqa: E402

# A run with a deadline must be back this much after it.
DEADLINE_SLACK_S = 1.0
# What a process may keep after everything was closed: the C library gives small blocks back late.
KEPT_MB = 64
IN_OPEN, IN_ISDIR, IN_NONBLOCK = 0x20, 0x40000000, 0o4000
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


SANITIZER = b"libasan.so"
# A hang is still one, and memory without bound too: only by these much later.
SANITIZED_SECONDS, SANITIZED_MB = 20, 8192


def sanitized(build):
    with open(os.path.join(build, "libgantry.so"), "rb") as f:
        return SANITIZER in f.read()


def preload_sanitizer():
    """Runs this script again with the sanitizer's library before all others, once."""
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    # Python itself leaves memory to the end of the process; a leak of ours is a matter of the unit tests.
    options = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0", "allocator_may_return_null=1"]))
    os.execve(sys.executable, [sys.executable] + sys.argv, dict(os.environ, LD_PRELOAD=library, ASAN_OPTIONS=options))


# ---------------------------------------------------------------- in the child

def read_tensor(path):
    with open(path, "rb") as f:
        return numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))


def node_names(report):
    return [n["node"] for n in report["nodes"]]


def check_report(session, check, outputs, folder):
    """None, or what is wrong. There is no HTML report yet: nothing to escape."""
    kind = check["kind"]
    if kind in ("report_json_parses", "report_valid_utf8"):
        session.report()
        session.report(text=True)
    elif kind == "report_text_no_control":
        found = CONTROL.search(session.report(text=True))
        return found and "the text report holds the control character %r" % found.group()
    elif kind == "report_has_node":
        if check["name"] not in node_names(session.report()):
            return "no node of the report is named %.60r" % check["name"]
    elif kind == "report_unique_stable_names":
        names = node_names(session.report())
        if len(set(names)) != check["count"] or len(names) != check["count"] or names != node_names(session.report()):
            return "the report's names are %r, not %d stable ones" % (names, check["count"])
    elif kind == "indices_valid":
        got = outputs[check["output"]].ravel()
        if ((got < 0) | (got >= check["below"])).any() or (check.get("distinct") and len(set(got.tolist())) != got.size):
            return "%s = %s" % (check["output"], got)
    elif kind != "report_html_escaped":
        return "unknown check " + kind
    return None


def wrong_outputs(want, got):
    return ["%s is %s" % (n, None if n not in got else "%s %s %s" % (got[n].dtype, got[n].shape, str(got[n].ravel()[:4])))
            for n, w in want.items()
            if n not in got or got[n].dtype != w.dtype or got[n].shape != w.shape or
            not np.array_equal(got[n], w, equal_nan=w.dtype.kind == "f")]


def try_run(session, feeds):
    try:
        return "ok", session.execute(feeds), ""
    except gantry.GantryError as e:
        return "run_error", {}, e.message


def resident_mb(pid):
    try:
        with open("/proc/%d/statm" % pid) as f:
            return int(f.read().split()[1]) * resource.getpagesize() >> 20
    except (OSError, IndexError, ValueError):
        return 0


class OpenedFiles:
    """Names of files in a folder, not below it, that this or another process opens from now on."""

    def __init__(self, folder):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(IN_NONBLOCK)
        if self.fd < 0 or self.libc.inotify_add_watch(self.fd, os.fsencode(folder), IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify", folder)

    def names(self):
        names, data = set(), b""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            pass
        while data:
            mask, size = int.from_bytes(data[4:8], sys.byteorder), int.from_bytes(data[12:16], sys.byteorder)
            if not mask & IN_ISDIR:
                names.add(os.fsdecode(data[16:16 + size].rstrip(b"\0")))
            data = data[16 + size:]
        return names


def options_of(expect):
    options = {"threads": 1, "memory_limit": expect["limits"]["memory_mb"] << 20}
    if "deadline_ms" in expect:
        options["deadline_ms"] = expect["deadline_ms"]
    return options


def model_source(folder, expect):
    path = os.path.join(folder, "model.onnx")
    if expect.get("load", "file") == "file":
        return path
    with open(path, "rb") as f:
        return f.read()


def base_of(folder, expect):
    return {} if expect.get("load", "file") == "file" else {"base": folder}


def use_model(lib, folder, expect):
    """{outcome, text, problems}"""
    feeds = {i["name"]: read_tensor(os.path.join(folder, i["file"])) for i in expect["inputs"]}
    want = {o["name"]: read_tensor(os.path.join(folder, o["file"])) for o in expect["outputs"]}
    runtime = gantry.Runtime(lib)
    try:
        session = gantry.Session(runtime, model_source(folder, expect), dict(options_of(expect), **base_of(folder, expect)))
    except gantry.GantryError as e:
        runtime.close()
        return {"outcome": "load_error", "text": e.message, "problems": []}
    start, problems = time.monotonic(), []
    outcome, outputs, text = try_run(session, feeds)
    if "deadline_ms" in expect and time.monotonic() - start > expect["deadline_ms"] / 1e3 + DEADLINE_SLACK_S:
        problems.append("came back %.1f s after the start" % (time.monotonic() - start))
    elif "deadline_ms" not in expect:
        again = try_run(session, feeds)
        if again[0] != outcome or again[2] != text:
            problems.append("the second run ended with %s %s" % (again[0], again[2]))
    if outcome == "ok":
        problems += wrong_outputs(want, outputs)
        problems += filter(None, [check_report(session, c, outputs, folder) for c in expect.get("checks", [])])
    session.close()
    runtime.close()
    return {"outcome": outcome, "text": text, "problems": problems}


def try_file(lib, folder, expect, measured):
    opened, before = OpenedFiles(os.path.dirname(folder)), resident_mb(os.getpid())
    answer = use_model(lib, folder, expect)
    kept = resident_mb(os.getpid()) - before
    if measured and kept > KEPT_MB:
        answer["problems"].append("%d MB are kept after everything was closed" % kept)
    answer["problems"] += ["opens %s, which lies outside the model's folder" % name for name in sorted(opened.names())]
    return answer


def child(lib, folder, expect, measured, pipe):
    try:
        # Files of gigabytes are asked for; what the limit on resident memory is about must not take the machine with it.
        # A sanitizer takes addresses for all the memory there could be.
        if measured:
            resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir("/")
        answer = try_file(lib, folder, expect, measured)
    except BaseException as e:  # a bug in the test or in the binding must not look like a pass
        answer = {"outcome": "exception", "text": "%s: %s" % (type(e).__name__, e), "problems": []}
    os.write(pipe, json.dumps(answer).encode())
    os._exit(0)


# ---------------------------------------------------------------- in the parent

def watch(pid, read_end, seconds, memory_mb):
    """(why it was ended or None, what it wrote, its exit status)"""
    ended, data, stop, before = None, b"", time.monotonic() + seconds, resident_mb(os.getpid())
    while True:
        if select.select([read_end], [], [], 0.02)[0]:
            chunk = os.read(read_end, 65536)
            data += chunk
            if not chunk:
                break
        if time.monotonic() > stop:
            ended = "hangs: no end within %.0f s" % seconds
        elif resident_mb(pid) - before > memory_mb:
            ended = "takes more than %d MB" % memory_mb
        if ended:
            os.kill(pid, signal.SIGKILL)
            break
    return ended, data, os.waitpid(pid, 0)[1]


def mentions(text, word):
    """Words of up to three characters and numbers must stand alone; longer ones may be part of a word."""
    word = word.lower()
    if len(word) <= 3 or word.lstrip("-").isdigit():
        return re.search(r"(?<![a-z0-9_])" + re.escape(word) + r"(?![a-z0-9_])", text) is not None
    return word in text


def judge(folder, expect, answer):
    problems = list(answer["problems"])
    if answer["outcome"] not in [expect["expect"]] + expect.get("also_accepted", []):
        problems.insert(0, "%s, expected %s: %s" % (answer["outcome"], expect["expect"], answer["text"]))
    elif answer["outcome"] != "ok":
        # The case's own name is no message.
        text = answer["text"].replace(os.path.join(folder, "model.onnx"), "MODEL").replace(folder, "FOLDER").lower()
        for entry in expect["must_mention"]:
            words = [entry] if isinstance(entry, str) else entry
            if not any(mentions(text, w) for w in words):
                problems.append("the error does not mention %s: %s" % (" or ".join(words), answer["text"]))
        if CONTROL.search(answer["text"]):
            problems.append("the error holds control characters: %r" % answer["text"])
    return problems


def run_case(lib, folder, expect, measured=True):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        child(lib, folder, expect, measured, write_end)
    os.close(write_end)
    limits = expect["limits"]
    seconds, memory_mb = limits["seconds"], limits["memory_mb"]
    if not measured:
        seconds, memory_mb = seconds + SANITIZED_SECONDS, memory_mb + SANITIZED_MB
    ended, data, status = watch(pid, read_end, seconds, memory_mb)
    os.close(read_end)
    if ended:
        return [ended]
    if os.WIFSIGNALED(status):
        return ["ends by signal %d" % os.WTERMSIG(status)]
    if not data:
        return ["ends with status %d without an answer" % os.WEXITSTATUS(status)]
    return judge(folder, expect, json.loads(data))


def run_folder(top, build, only="", big=False):
    """(name, list of problems) of every file in the folder whose name matches."""
    measured = not sanitized(build)
    if not measured:
        preload_sanitizer()
    lib = gantry.load(build)
    for path in sorted(glob.glob(os.path.join(glob.escape(os.path.abspath(top)), "*/expect.json"))):
        folder = os.path.dirname(path)
        if not re.search(only, os.path.basename(folder)):
            continue
        with open(path) as f:
            expect = json.load(f)
        if big or not expect.get("on_demand"):
            yield os.path.basename(folder), run_case(lib, folder, expect, measured)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("files", metavar="DIR")
    ap.add_argument("--only", metavar="REGEX", default="")
    ap.add_argument("--build", default=os.path.join(os.path.dirname(HERE), "build", "release"))
    ap.add_argument("--big", action="store_true")
    args = ap.parse_args()
    passed = failed = 0
    for name, problems in run_folder(args.files, os.path.abspath(args.build), args.only, args.big):
        passed, failed = passed + (not problems), failed + bool(problems)
        for problem in problems:
            print("%s: %s" % (name, problem[:600]), flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
