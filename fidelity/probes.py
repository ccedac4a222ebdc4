"""Points that try one thing each: text, odd numbers, odd steps, odd tags, many buckets, a graph (FID-8).

A probe only sends; what ought to come back is decided elsewhere.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, isfinite, nan

from torchlens_conformance.protocol import GraphPoint, GridDescriptor, HistogramPoint, Point, ScalarPoint, TextPoint

ROOT = "probe"
"""First component of every probe's tag, so that probes and data never mix."""

BUCKETS = (31, 32, 33, 64, 497, 511, 512, 513, 600, 2048)
"""Histogram sizes around every known cap (ATTACH-4)."""

LOG2 = "log2-"
"""What stands before the size in the tag of a probe histogram with signed-log2 edges."""

_WIDE_GRID = GridDescriptor(bins_per_octave=16)

PRECISION = {"1e300": 1e300, "16777217": 16777217, "0.1": 0.1, "5e-324": 5e-324, "-0.0": -0.0}
"""Numbers that float32 cannot hold, and the zero that some stores take for the other one, by name."""

NONFINITE = {"nan": nan, "posinf": inf, "neginf": -inf}
"""The non-finite numbers, by name; each is sent between two finite neighbours."""

LARGE_STEPS = (2**31 - 1, 2**31, 2**31 + 5, 2**40, 2**53 + 1, 2**63 - 1)
"""Steps past the usual integer widths, rising."""

TEXTS = {
    "plain": "attached at step 100",
    "lines": "# Manifest\n\n| key | value |\n|---|---|\n| grid | signed-log2 |\n",
    "unicode": "Schrödinger \u2192 \u03c8, \U0001f600, tab\tand \u2028 line",
    "empty": "",
}
"""Texts by name."""

TAGS = (
    "with space",
    "dots.in.leaf",
    "deep/er/and/deeper",
    "double//slash",
    "trailing/",
    "colon:at@comma,plus+",
    "percent%20",
    "question?mark#hash",
    "quote\"and'apostrophe",
    "angle<and>pipe|",
    "back\\slash",
    "\u00fcml\u00e4ut",
    "x" * 300,
)
"""Tails of tags, safe and unsafe ones; each is sent once."""

WRITER_FIRST_VALUES = (0.25, 0.5, 0.75)
"""Values of the three scalars of the writer-first run."""

RESUME = "resume"
"""Second component of the tags of the run that is continued."""

RESUME_STEPS = ((0, 50, 100), (101, 150, 200))
"""Steps before the run is ended, and after it was continued (bug report 24)."""

RESUME_BUCKETS = 64
"""Buckets of the histograms of that run, under every known cap."""


def item_name(point: Point) -> str:
    """Return how a point is named among those of its row: a probe by what it tries, a data point by its tag."""
    if isinstance(point, GraphPoint):
        return "graph"
    root, _, rest = point.tag.partition("/")
    row, _, tail = rest.partition("/")
    if root != ROOT:
        return point.tag
    if isinstance(point, HistogramPoint) and row == RESUME:
        return f"histogram at step {point.step}"
    if row in _ONE_SERIES:
        return f"step {point.step}"
    if isinstance(point, ScalarPoint) and row == "nonfinite" and isfinite(point.value):
        return f"{point.value} beside {tail}"
    return shortened(tail)


_ONE_SERIES = frozenset({RESUME, "large-steps", "writer-first"})


def shortened(name: str, *, most: int = 80) -> str:
    """Return a name, a long one as its beginning and its length."""
    return name if len(name) <= most else f"{name[:10]}... ({len(name)} characters)"


def graph_probe() -> list[Point]:
    """A small attention graph: four operations, three edges."""
    nodes = [
        {"name": "input", "op": "Placeholder", "inputs": []},
        {"name": "attention/matmul", "op": "matmul", "inputs": ["input"]},
        {"name": "attention/softmax", "op": "softmax", "inputs": ["attention/matmul"]},
        {"name": "output", "op": "linear", "inputs": ["attention/softmax"]},
    ]
    return [GraphPoint({"nodes": nodes})]


def text_probe() -> list[Point]:
    """Every text of :data:`TEXTS`, at step 200."""
    return [TextPoint(f"{ROOT}/text/{name}", 200, text) for name, text in TEXTS.items()]


def nonfinite_probe() -> list[Point]:
    """Each non-finite number between two finite neighbours of its series."""
    points: list[Point] = []
    for step, position in ((202, 0), (204, 1), (206, 2)):
        for name, value in NONFINITE.items():
            points.append(ScalarPoint(f"{ROOT}/nonfinite/{name}", step, (1.5, value, 2.5)[position]))
    return points


def precision_probe() -> list[Point]:
    """Each number of :data:`PRECISION`, at step 210."""
    return [ScalarPoint(f"{ROOT}/precision/{name}", 210, value) for name, value in PRECISION.items()]


def bucket_probe() -> list[Point]:
    """Two histograms for each size of :data:`BUCKETS` at step 220, no bucket empty: unit and signed-log2 edges."""
    points: list[Point] = []
    for buckets in BUCKETS:
        points.append(_full_histogram(f"{ROOT}/buckets/{buckets}", tuple(float(edge) for edge in range(buckets + 1))))
    for buckets in BUCKETS:
        points.append(_full_histogram(f"{ROOT}/buckets/{LOG2}{buckets}", _signed_log2_edges(buckets)))
    return points


def _full_histogram(tag: str, edges: tuple[float, ...], *, step: int = 220, first: int = 1) -> HistogramPoint:
    counts = tuple(first + index % 7 for index in range(len(edges) - 1))
    centres = [(low + high) / 2 for low, high in pairwise(edges)]
    summary = {
        "min": centres[0],
        "max": centres[-1],
        "num": sum(counts),
        "sum": sum(count * centre for count, centre in zip(counts, centres)),
        "sum_squares": sum(count * centre * centre for count, centre in zip(counts, centres)),
    }
    return HistogramPoint(tag, step, counts, edges, summary)


def _signed_log2_edges(buckets: int) -> tuple[float, ...]:
    """The middle of a grid with more buckets than any probe has; the centre band lies in it."""
    edges = _WIDE_GRID.edges
    start = (len(edges) - buckets - 1) // 2
    return edges[start : start + buckets + 1]


def tag_probe() -> list[Point]:
    """One scalar for each odd tag, told apart by its value, at step 230."""
    return [ScalarPoint(f"{ROOT}/tags/{tail}", 230, 1000.5 + index) for index, tail in enumerate(TAGS)]


def large_step_probe() -> list[Point]:
    """One series over :data:`LARGE_STEPS`; it comes last, since some stores take no smaller step afterwards."""
    return [ScalarPoint(f"{ROOT}/large-steps/value", step, 1.5 + index) for index, step in enumerate(LARGE_STEPS)]


def writer_first_points() -> list[Point]:
    """Three scalars for the run whose writer is constructed before the relay."""
    return [
        ScalarPoint(f"{ROOT}/writer-first/value", step, value)
        for step, value in zip((100, 102, 104), WRITER_FIRST_VALUES)
    ]


def resume_points() -> tuple[list[Point], list[Point]]:
    """What is sent before a run is ended, and what after it was continued: three scalars and a histogram each.

    All scalars have values of their own, which float32 holds; the last step of the first part is the largest.
    """
    before, after = (
        [ScalarPoint(f"{ROOT}/{RESUME}/value", step, 0.25 + step / 4) for step in steps] for steps in RESUME_STEPS
    )
    edges = tuple(float(edge) for edge in range(RESUME_BUCKETS + 1))
    return (
        [*before, _full_histogram(f"{ROOT}/{RESUME}/counts", edges, step=RESUME_STEPS[0][-1])],
        [*after, _full_histogram(f"{ROOT}/{RESUME}/counts", edges, step=RESUME_STEPS[1][-1], first=3)],
    )


def all_probes() -> list[Point]:
    """Every probe of the main run, in the order they are sent."""
    return [
        *graph_probe(),
        *text_probe(),
        *nonfinite_probe(),
        *precision_probe(),
        *bucket_probe(),
        *tag_probe(),
        *large_step_probe(),
    ]
