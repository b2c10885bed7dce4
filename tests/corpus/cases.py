#!/usr/bin/env python3
"""The placement and numerics cases that have to pass: names that match tests/corpus/cases.expected, with the fake device; and those of
them in which it stands for any device once more on an OpenCL device, where there is one."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from corpus_python import BUILD, DATA, use_corpus_python  # noqa: E402

use_corpus_python()
import gantry_ctypes as gantry  # noqa: E402
from child import in_child  # noqa: E402
from devices import no_device  # noqa: E402

TOTAL = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)


def run(pattern, *options):
    command = [sys.executable, os.path.join(os.path.dirname(HERE), "run_cases.py"), os.path.join(DATA, "cases"), "--build", BUILD, "--only", pattern]
    said = subprocess.run(command + list(options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace").stdout
    totals = TOTAL.findall(said)
    print(TOTAL.sub("", said).rstrip("\n"))
    return tuple(map(int, totals[-1])) if totals else (0, 1)


def main():
    with open(os.path.join(HERE, "cases.expected")) as f:
        expected = [line.split("#")[0].strip() for line in f]
    pattern = "|".join("^" + e for e in expected if e)
    passed, failed = run(pattern)
    missing = in_child(lambda: [p for p in [no_device(gantry.load(BUILD))] if p])
    if missing:
        print("not on OpenCL: %s" % missing[0])
        print("%d passed, %d failed, 1 skipped" % (passed, failed))
        return 1 if failed else 0
    more = run(pattern, "--opencl")
    print("%d passed, %d failed" % (passed + more[0], failed + more[1]))
    return 1 if failed + more[1] or not more[0] else 0


if __name__ == "__main__":
    sys.exit(main())
