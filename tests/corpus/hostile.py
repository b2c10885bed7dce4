#!/usr/bin/env python3
"""The hostile files of $GANTRY_CORPUS_DATA/hostile, all but those that tests/hostile.known gives a reason for.

A known one counts as skipped while it fails; one that passes fails the suite, so that the list only shrinks. Ends with
"N passed, N failed, N skipped".
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [TESTS, os.path.join(TESTS, "support")]
from corpus_python import BUILD, DATA  # noqa: E402
from run_hostile import run_folder  # noqa: E402

def known_names():
    """{name: reason} of lines "NAME  # REASON"."""
    with open(os.path.join(TESTS, "hostile.known")) as f:
        pairs = [line.partition("#") for line in f]
    return {name.strip(): reason.strip() for name, _, reason in pairs if name.strip()}


def main():
    known, passed, failed, skipped = known_names(), 0, 0, 0
    for name, problems in run_folder(os.path.join(DATA, "hostile"), os.path.abspath(BUILD), big="--long" in sys.argv[1:]):
        reason = known.pop(name, None)
        if reason is not None and not problems:
            problems, reason = ["passes: remove it from the list tests/hostile.known"], None
        elif reason == "":
            problems, reason = ["tests/hostile.known gives no reason for it"], None
        passed, failed, skipped = passed + (not problems), failed + (bool(problems) and not reason), skipped + bool(reason)
        for problem in problems:
            print("%s%s: %s" % ("known: " if reason else "", name, problem[:600]), flush=True)
    for name in known:
        failed += 1
        print("%s: tests/hostile.known names it, but there is no such file" % name)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
