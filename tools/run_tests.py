#!/usr/bin/env python3
"""Run every test of one build and print one total: the last line is "N passed, N failed[, N skipped]".

    tools/run_tests.py --build build/release            test programs, then the corpus suites
    tools/run_tests.py --build build/asan --programs-only
    tools/run_tests.py --build build/release --long     and the big models
    tools/run_tests.py --build build/release REGEX      only programs and suites whose name matches

Test programs are what CTest knows; a Criterion program counts as many tests as it ran, another one as one (exit status
77: skipped). A program that runs out of time, dies, or leaves a sanitizer report has failed: Criterion does not notice leaks.

Corpus suites need the data that tools/corpus.sh makes from $GANTRY_CORPUS (default ../shared); without that folder they are
skipped. A suite is `conformance` (the corpus's own runner against tests/conformance.known), or any executable
tests/corpus/NAME.py: it gets --long when this script does, finds GANTRY_BUILD, GANTRY_CORPUS_DATA, GANTRY_MODELS and
GANTRY_CORPUS in its environment, and its last line is such a total as well.

Output of each goes to BUILD/test-logs/NAME.log. Exit: 0 when nothing failed.
"""
import argparse
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SYNTHESIS = re.compile(r"Synthesis: Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
TOTAL = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", re.MULTILINE)
# What sanitizers log beside reports. A process may end while threads of its own run (a device's queue): LeakSanitizer then
# says that it might see leaks that are none, which is no leak seen.
NO_REPORT = re.compile(r"==\d+==Running thread \d+ was not suspended\. False leaks are possible\.$")
SKIP_STATUS = 77
SUITE_SECONDS = 1200
LONG_SUITE_SECONDS = 7200


class Result:
    """What one program or suite counted, and in one line why it is not all passed."""

    def __init__(self, name, passed=0, failed=0, skipped=0, why=""):
        self.name, self.passed, self.failed, self.skipped, self.why = name, passed, failed, skipped, why
        self.seconds = 0.0

    def line(self):
        state = "FAILED" if self.failed else "skipped" if self.skipped and not self.passed else "ok"
        counts = "%d passed, %d failed" % (self.passed, self.failed)
        if self.skipped:
            counts += ", %d skipped" % self.skipped
        return "%-7s %-28s %s (%.1f s)%s" % (state, self.name, counts, self.seconds, ": " + self.why if self.why else "")


class Runner:
    def __init__(self, args):
        self.build = os.path.abspath(args.build)
        self.long = args.long
        self.logs = os.path.join(self.build, "test-logs")
        self.corpus = os.path.abspath(os.environ.get("GANTRY_CORPUS") or os.path.join(TOP, "../shared"))
        self.data = os.path.join(TOP, "build/corpus")
        self.python = os.environ.get("GANTRY_CORPUS_PYTHON") or os.path.join(TOP, "build/deps/corpus/bin/python")
        os.makedirs(self.logs, exist_ok=True)

    def environment(self, name):
        models = os.environ.get("GANTRY_MODELS") or os.path.expanduser("~/.cache/gantry-models")
        sanitizer = "log_path=%s" % self.sanitizer_log(name)
        env = dict(os.environ, GANTRY_BUILD=self.build, GANTRY_CORPUS_DATA=self.data, GANTRY_MODELS=models,
                   GANTRY_CORPUS=self.corpus, PYTHONDONTWRITEBYTECODE="1",
                   POCL_CACHE_DIR=os.path.join(self.build, "pocl-cache"))
        for options in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            env[options] = ":".join(filter(None, [os.environ.get(options), sanitizer]))
        env["LSAN_OPTIONS"] += ":print_suppressions=0:suppressions=" + os.path.join(TOP, "tests/lsan.supp")
        return env

    def sanitizer_log(self, name):
        return os.path.join(self.logs, name + ".sanitizer")

    def execute(self, name, command, timeout, folder):
        """(exit status or None when it ran out of time, its output)"""
        for old in glob.glob(glob.escape(self.sanitizer_log(name)) + "*"):
            os.remove(old)
        try:
            done = subprocess.run(command, cwd=folder, env=self.environment(name), timeout=timeout, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as e:
            status, output = None, (e.stdout or b"").decode(errors="replace")
        except OSError as e:
            status, output = 127, str(e)
        for report in glob.glob(glob.escape(self.sanitizer_log(name)) + "*"):
            with open(report, errors="replace") as f:
                text = f.read()
            output += "\n" + text
            if is_report(text):
                status = status or 1
        with open(os.path.join(self.logs, name + ".log"), "w") as f:
            f.write("$ %s\n%s\nexit status %s\n" % (shlex.join(command), output, "none: out of time" if status is None else status))
        return status, output

    def timed(self, function, *args):
        start = time.monotonic()
        result = function(*args)
        result.seconds = time.monotonic() - start
        print(result.line(), flush=True)
        return result

    def judge(self, name, status, counted, limit):
        """A result from an exit status and the (passed, failed, skipped) that the output names, or None."""
        if status == SKIP_STATUS:
            return Result(name, skipped=1)
        passed, failed, skipped = counted or (0, 0, 0)
        why = ""
        if status is None:
            why = "no end within %d s" % limit
        elif status < 0:
            why = "ended by signal %d" % -status
        elif status > 0:
            why = "exit status %d" % status
        elif counted is None:
            why = "printed no total"
        if why and not failed:
            failed = 1
        if failed:
            why = (why + ", " if why else "") + "see " + os.path.relpath(os.path.join(self.logs, name + ".log"))
        return Result(name, passed, failed, skipped, why)

    # -- test programs

    def programs(self):
        listing = subprocess.run(["ctest", "--test-dir", self.build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
        for test in json.loads(listing.stdout)["tests"]:
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            if test.get("command"):
                yield test["name"], test["command"], int(properties.get("TIMEOUT", 300)), properties.get("WORKING_DIRECTORY", TOP)

    def run_program(self, name, command, timeout, folder):
        status, output = self.execute(name, command, timeout, folder)
        found = SYNTHESIS.findall(output)
        if found:
            tested, passing, failing, crashing = map(int, found[-1])
            counted = (passing, max(failing + crashing, tested - passing), 0)
        else:
            counted = (1, 0, 0) if status == 0 else None
        return self.judge(name, status, counted, timeout)

    # -- corpus suites

    def prepare_corpus(self):
        parts = ["conformance", "cases", "hostile", "all_models" if self.long else "models"]
        status = subprocess.run([os.path.join(TOP, "tools/corpus.sh"), *parts]).returncode
        return Result("corpus", failed=1, why="tools/corpus.sh failed") if status else None

    def suites(self):
        yield "conformance", self.run_conformance
        for path in sorted(glob.glob(os.path.join(TOP, "tests/corpus/*.py"))):
            if os.access(path, os.X_OK):
                yield os.path.basename(path)[:-3], lambda p=path: self.run_script(p)

    def run_script(self, path):
        name = os.path.basename(path)[:-3]
        limit = LONG_SUITE_SECONDS if self.long else SUITE_SECONDS
        status, output = self.execute(name, [self.python, path] + (["--long"] if self.long else []), limit, TOP)
        found = TOTAL.findall(output)
        return self.judge(name, status, tuple(int(n or 0) for n in found[-1]) if found else None, limit)

    def run_conformance(self):
        """A wrong answer fails unless tests/conformance.known gives a reason; so does a tier-1 case that is not supported."""
        name, out = "conformance", os.path.join(self.logs, "conformance.json")
        if os.path.exists(out):
            os.remove(out)
        command = [self.python, os.path.join(self.corpus, "conformance/run.py"), os.path.join(self.data, "conformance"),
                   "--batch", shlex.quote(os.path.join(self.build, "gantry")) + " run --batch", "--jobs", "2", "--json", out, "--failures"]
        status, output = self.execute(name, command, SUITE_SECONDS, TOP)
        if not os.path.exists(out):
            return self.judge(name, status or 1, None, SUITE_SECONDS)
        tier1 = set(names_in(os.path.join(self.corpus, "conformance/tier1.txt")))
        known = names_in(os.path.join(TOP, "tests/conformance.known"))
        result, bad = Result(name), []
        with open(out) as f:
            cases = json.load(f)["cases"]
        for case in cases:
            if case["status"] == "passed":
                result.passed += 1
            elif case["name"] in known or (case["status"] == "unsupported" and case["name"] not in tier1):
                result.skipped += 1
            else:
                result.failed += 1
                bad.append("%s: %s %s" % (case["name"], case["status"], case.get("why") or ""))
        with open(os.path.join(self.logs, "conformance.failed"), "w") as f:
            f.write("\n".join(bad) + "\n")
        if bad:
            result.why = "see " + os.path.relpath(f.name) + ", first: " + bad[0][:200]
        return result


def is_report(text):
    """Whether a sanitizer's log says more than what is known to be no report."""
    return any(line.strip() and not NO_REPORT.match(line.strip()) for line in text.splitlines())


def names_in(path):
    """{name: reason} of lines "NAME  # REASON"; no file, no names."""
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        pairs = [line.partition("#") for line in f]
    return {name.strip(): reason.strip() for name, _, reason in pairs if name.strip()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(TOP, "build/release"))
    parser.add_argument("--programs-only", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("match", nargs="?", default="")
    args = parser.parse_args()
    runner, wanted = Runner(args), re.compile(args.match)

    with ThreadPoolExecutor(args.jobs) as pool:
        programs = [p for p in runner.programs() if wanted.search(p[0])]
        results = list(pool.map(lambda p: runner.timed(runner.run_program, *p), programs))

    note = ""
    suites = [] if args.programs_only else [s for s in runner.suites() if wanted.search(s[0])]
    if suites and not os.path.isdir(runner.corpus):
        note = "skipped: no corpus (%s)" % os.path.relpath(runner.corpus)
        results.append(Result("corpus", skipped=len(suites)))
    elif suites:
        broken = runner.prepare_corpus()
        results += [broken] if broken else [runner.timed(run) for _, run in suites]

    passed, failed, skipped = (sum(getattr(r, k) for r in results) for k in ("passed", "failed", "skipped"))
    for result in results:
        if result.failed:
            print(result.line())
    if note:
        print(note)
    print("%d passed, %d failed" % (passed, failed) + (", %d skipped" % skipped if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
