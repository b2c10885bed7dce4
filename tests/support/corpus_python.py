"""Runs a corpus script under a Python that has onnx and numpy: this one, or the environment that tools/corpus.sh made."""
import importlib.util
import os
import sys


def use_corpus_python():
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("numpy"):
        return
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    python = os.path.join(root, "build", "deps", "corpus", "bin", "python")
    if os.path.exists(python) and not os.environ.get("GANTRY_CORPUS_PYTHON"):
        os.environ["GANTRY_CORPUS_PYTHON"] = "1"
        os.execv(python, [python] + sys.argv)
    sys.exit("onnx and numpy are needed: run tools/corpus.sh, which makes an environment with them")
