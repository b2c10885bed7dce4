#!/usr/bin/env python3
"""tools/run_tests.py fails a program that leaves a sanitizer's report, and does not for a line that is none."""
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tools"))
sys.dont_write_bytecode = True
import run_tests

RUNNING = "==4242==Running thread 4243 was not suspended. False leaks are possible.\n"
LEAK = "\n==7==ERROR: LeakSanitizer: detected memory leaks\n\nSUMMARY: AddressSanitizer: 8 byte(s) leaked in 1 allocation(s).\n"
REPORTS = [
    ("", False),
    ("\n", False),
    (RUNNING, False),
    (RUNNING * 2, False),
    (LEAK, True),
    (RUNNING + LEAK, True),
    ("graph/expr.c:10:5: runtime error: signed integer overflow\n", True),
    ("==7==AddressSanitizer: CHECK failed: asan_thread.cpp\n", True),
    ("==7==LeakSanitizer has encountered a fatal error.\n", True),
    ("AddressSanitizer:DEADLYSIGNAL\n" + RUNNING, True),
]


def outcome(folder, text):
    """What the runner makes of a program that ends well and leaves `text` where sanitizers log."""
    arguments = type("Arguments", (), {"build": folder, "long": False})
    runner = run_tests.Runner(arguments)
    left = "import sys; open(sys.argv[1] + '.1', 'w').write(sys.argv[2])"
    command = [sys.executable, "-c", left, runner.sanitizer_log("program"), text]
    return runner.run_program("program", command, 60, folder)


def main():
    bad = ["is_report(%r) is %s" % (text, not report) for text, report in REPORTS if run_tests.is_report(text) != report]
    with tempfile.TemporaryDirectory() as folder:
        for text, failed in (("", 0), (RUNNING, 0), (RUNNING + LEAK, 1)):
            result = outcome(folder, text)
            if result.failed != failed:
                bad.append("a program that leaves %r: %s" % (text, result.line()))
            with open(os.path.join(folder, "test-logs/program.log")) as f:
                if text not in f.read():
                    bad.append("the log does not hold %r" % text)
    print("\n".join(bad) or "check_runner: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
