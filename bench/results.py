"""What the table and the plot share: results of peers.py, models by kind, ratios, means."""
import json
import math

PEERS = ("ort", "ov")
PEER_NAMES = {"ort": "ONNX Runtime", "ov": "OpenVINO"}
TINY = ("tiny_add", "tiny_mlp", "ctrl_loop")
DYNAMIC = ("minilm_int8", "tashkeel_bilstm", "titler_encoder")
# (key, heading, what its geometric mean is over)
KINDS = (("f32", "float32", "the float32 models, tiny ones left out"),
         ("static", "INT8, static Q/DQ", "the static INT8 models"),
         ("dynamic", "INT8, dynamic or weights only", None),
         ("tiny", "tiny models: the cost of a run", None))


def load(path):
    with open(path) as f:
        return json.load(f)


def kind_of(model):
    if model in TINY:
        return "tiny"
    if model in DYNAMIC:
        return "dynamic"
    return "static" if "_qdq" in model or "_qlinear" in model else "f32"


def usable(row):
    return bool(row) and "error" not in row


def better(per, key="median_ms"):
    """The lower figure of the two peers, or None."""
    values = [per[p][key] for p in PEERS if usable(per.get(p))]
    return min(values) if values else None


def geometric_mean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def ratio(a, b):
    return a / b if a and b else None


def round_ratios(data, model, peer):
    """Gantry's median over the peer's, one for each round: measured one after the other."""
    by_round = {}
    for r in data["raw"]:
        if r["model"] == model and usable(r):
            by_round.setdefault(r["round"], {})[r["engine"]] = r["median_ms"]
    return sorted(per["gantry"] / per[peer] for per in by_round.values() if "gantry" in per and peer in per)


def middle(values):
    """The median of sorted values."""
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
