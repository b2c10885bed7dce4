#!/usr/bin/env python3
"""The placement and numerics cases that have to pass: names that match tests/corpus/cases.expected."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from corpus_python import BUILD, DATA  # noqa: E402

with open(os.path.join(HERE, "cases.expected")) as f:
    expected = [line.split("#")[0].strip() for line in f]
pattern = "|".join("^" + e for e in expected if e)
os.execv(sys.executable, [sys.executable, os.path.join(os.path.dirname(HERE), "run_cases.py"), os.path.join(DATA, "cases"), "--build",
                          BUILD, "--only", pattern])
