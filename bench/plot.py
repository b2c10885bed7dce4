#!/usr/bin/env python3
"""A picture of what the corpus's peers.py measured: for each model Gantry's time over each peer's, on a logarithmic axis.

    bench/plot.py RESULT.json [RESULT.json ...] > docs/benchmarks/NAME.svg

A mark is the median of the round-by-round ratios, its whisker the lowest and the highest of them; one row a thread count. Left of the
line at 1 Gantry is faster. A diamond is the geometric mean of a group. Needs nothing but Python.
"""
import math
import os
import sys
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from results import KINDS, PEERS, PEER_NAMES, geometric_mean, kind_of, load, middle, round_ratios  # noqa: E402

WIDTH, LEFT, RIGHT, TOP = 960, 210, 40, 84
ROW, GAP, HEADING = 14, 9, 30
LOW, HIGH = 0.2, 2.0
TICKS = (0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0)
COLORS = {"ort": "#1f6fb4", "ov": "#c8541a"}
INK, FAINT = "#222222", "#d9d9d9"


def x_of(value):
    value = min(max(value, LOW), HIGH)
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / LOW) / math.log(HIGH / LOW)


def line(x1, y1, x2, y2, color, width=1.0, extra=""):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g"%s/>' % (x1, y1, x2, y2, color, width, extra)


def label(x, y, words, size=12, anchor="start", color=INK, weight="normal"):
    return '<text x="%.1f" y="%.1f" font-size="%g" text-anchor="%s" fill="%s" font-weight="%s">%s</text>' % (x, y, size, anchor, color, weight,
                                                                                                         escape(words))


def shape(kind, x, y, color):
    if kind == "mean":
        return '<path d="M%.1f %.1fl6 -6l6 6l-6 6z" fill="%s"/>' % (x - 6, y, color)
    return '<circle cx="%.1f" cy="%.1f" r="3.6" fill="%s"/>' % (x, y, color)


def mark(values, y, color, kind="circle", column=0):
    """values: sorted ratios. What lies outside of the axis stands at its edge, with the number in that column beside it."""
    at, parts = middle(values), []
    parts.append(line(x_of(values[0]), y, x_of(values[-1]), y, color, 1.6))
    for end in (values[0], values[-1]):
        parts.append(line(x_of(end), y - 3, x_of(end), y + 3, color, 1.2))
    parts.append(shape(kind, x_of(at), y, color))
    if not LOW <= at <= HIGH:
        side = 1 if at < LOW else -1
        parts.append(label(x_of(at) + side * (8 + 36 * column), y + 4, "%.2g" % at, 10, "start" if at < LOW else "end", color))
    return parts


def model_rows(results, models, y):
    """The marks of these models from y downwards, and where they end."""
    parts = []
    for model in models:
        height = ROW * len(results)
        parts.append(label(LEFT - 34, y + height / 2 + 4, model, 12, "end"))
        for data in results:
            parts.append(label(LEFT - 8, y + ROW / 2 + 3, "%dT" % data["threads"], 9, "end", "#777777"))
            for k, peer in enumerate(PEERS):
                values = round_ratios(data, model, peer)
                if values:
                    parts += mark(values, y + ROW / 2 + (k - 0.5) * 5, COLORS[peer], "circle", k)
            y += ROW
        y += GAP
    return parts, y


def mean_rows(results, models, y):
    parts = [label(LEFT - 34, y + ROW * len(results) / 2 + 4, "geometric mean", 12, "end", INK, "bold")]
    for data in results:
        parts.append(label(LEFT - 8, y + ROW / 2 + 3, "%dT" % data["threads"], 9, "end", "#777777"))
        for k, peer in enumerate(PEERS):
            mean = geometric_mean([middle(v) for v in (round_ratios(data, m, peer) for m in models) if v])
            if mean:
                parts += mark([mean], y + ROW / 2, COLORS[peer], "mean")
                parts.append(label(WIDTH - RIGHT + 4, y + ROW / 2 + (k - 0.5) * 10 + 4, "%.2f" % mean, 10, "start", COLORS[peer]))
        y += ROW + 6
    return parts, y + GAP


def groups(results):
    seen = []
    for data in results:
        seen += [m for m in data["merged"] if m not in seen]
    for key, heading, over in KINDS:
        models = [m for m in seen if kind_of(m) == key]
        if models:
            yield heading, over, models


def legend():
    parts = [label(LEFT, 22, "Time of a run: Gantry over its peers", 16, weight="bold"),
             label(LEFT, 42, "left of 1: Gantry is faster; whiskers: lowest and highest round; 1T, 2T: threads", 11, color="#555555")]
    for k, peer in enumerate(PEERS):
        parts += [shape("circle", LEFT + 6 + 130 * k, 58, COLORS[peer]), label(LEFT + 16 + 130 * k, 62, "to " + PEER_NAMES[peer], 12)]
    return parts


def axis(bottom):
    parts = []
    for tick in TICKS:
        x = x_of(tick)
        parts.append(line(x, TOP, x, bottom, INK if tick == 1 else FAINT, 1.2 if tick == 1 else 1))
        for y in (TOP - 5, bottom + 14):
            parts.append(label(x, y, "%g" % tick, 11, "middle"))
    return parts


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    results = [load(path) for path in sys.argv[1:]]
    body, y = [], TOP + 8
    for heading, over, models in groups(results):
        body.append(label(10, y + 14, heading, 13, weight="bold"))
        y += HEADING - 8
        parts, y = model_rows(results, models, y)
        body += parts
        if over and len(models) > 1:
            parts, y = mean_rows(results, models, y)
            body += parts
        y += 8
    height = y + 30
    print('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif">' % (WIDTH, height, WIDTH, height))
    print('<rect width="100%" height="100%" fill="white"/>')
    print("\n".join(legend() + axis(y) + body))
    print("</svg>")


if __name__ == "__main__":
    main()
