"""What the corpus scripts share: a Python that has onnx and numpy, and where build, models and cases lie."""
import importlib.util
import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("GANTRY_BUILD") or os.path.join(TOP, "build", "release")
MODELS = os.environ.get("GANTRY_MODELS") or os.path.expanduser("~/.cache/gantry-models")
DATA = os.environ.get("GANTRY_CORPUS_DATA") or os.path.join(TOP, "build", "corpus")
SMALL_MODELS = ["tiny_add", "tiny_mlp", "ctrl_loop", "ppocr_cls", "ppocr_rec", "silero_vad", "magika", "basic_pitch"]


def use_corpus_python():
    """Goes on under this Python, or starts the script again in the environment that tools/corpus.sh made."""
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("numpy"):
        return
    python = os.path.join(TOP, "build", "deps", "corpus", "bin", "python")
    if os.path.exists(python) and not os.environ.get("GANTRY_CORPUS_PYTHON"):
        os.environ["GANTRY_CORPUS_PYTHON"] = "1"
        os.execv(python, [python] + sys.argv)
    sys.exit("onnx and numpy are needed: run tools/corpus.sh, which makes an environment with them")


def load_npz(path):
    """{name: array}, arrays in C order."""
    import numpy as np

    with np.load(path) as f:
        return {k: np.array(f[k], order="C") for k in f.files}
