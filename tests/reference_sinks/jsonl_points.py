"""Points for the tests of the JSONL sink, its reader and the memory sink."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hypothesis import strategies as st

from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    ScalarPoint,
    TextPoint,
)

ONE_OF_EACH: tuple[Point, ...] = (
    ScalarPoint("a/b", 3, 0.1),
    ScalarPoint("a/\u00e9", 4, math.nan),
    HistogramPoint("h", 5, (1, 2**70), (-1.0, -0.0, 5e-324), {"min": -1.0, "max": math.inf, "num": 3}),
    TextPoint("t", 6, "one\ntwo\r\n\u2028\ud800"),
    GraphPoint({"nodes": [{"name": "x", "op": "relu", "inputs": []}]}),
    ImagePoint("i", 7, b"\0\xff\x80\n", (2, 2), "uint8"),
    EmbeddingPoint("e", 8, b"\0\0\x80?", (1, 1), "float32", ("label",)),
    EventPoint("v", 9, "started", {"$float": "NaN", "nested": [True, None, b"\n", -math.inf]}),
    MetadataPoint("m", 10, {"host": {"$map": 1}}),
)
"""Every kind of point, small, with what is hard to carry."""

steps = st.integers(0, 2**63 - 1)
texts = st.text(max_size=30) | st.text(st.characters(exclude_categories=()), max_size=6)
tags = st.sampled_from(["a/b", "NaN", "$float"]) | texts
numbers = st.floats() | st.integers() | st.integers(-(2**80), 2**80)
counts = st.integers(0, 9) | st.integers(0, 2**66)


def mappings_of(values: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Return small mappings, among them such as look like markers of the encoding."""
    return st.dictionaries(texts | st.sampled_from(["$float", "$bytes", "$map"]), values, max_size=3)


plain = st.recursive(
    st.none() | st.booleans() | numbers | tags | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | mappings_of(inner),
    max_leaves=6,
)


scalars = st.builds(ScalarPoint, tags, steps, numbers)
summaries = st.dictionaries(st.sampled_from(["min", "max", "num", "sum", "sum_squares"]), numbers)


@st.composite
def histograms(draw: st.DrawFn) -> HistogramPoint:
    """Return histograms over their own edges or over the default grid's."""
    if draw(st.booleans()):
        edges = DEFAULT_DESCRIPTOR.edges
        drawn = draw(st.lists(counts, min_size=3, max_size=9)) * len(edges)
    else:
        finite = st.floats(allow_nan=False, allow_infinity=False)
        edges = tuple(sorted(draw(st.sets(finite, min_size=2, max_size=6))))
        drawn = draw(st.lists(counts, min_size=6, max_size=6))
    return HistogramPoint(draw(tags), draw(steps), tuple(drawn[: len(edges) - 1]), edges, draw(summaries))


pixels = st.binary(max_size=9)
anything = (
    scalars
    | histograms()
    | st.builds(TextPoint, tags, steps, texts)
    | st.builds(GraphPoint, mappings_of(plain))
    | st.builds(lambda tag, step, data: ImagePoint(tag, step, data, (len(data),), "uint8"), tags, steps, pixels)
    | st.builds(
        lambda tag, step, data, labels: EmbeddingPoint(tag, step, data, (len(data), 1), "bool", labels),
        tags,
        steps,
        st.binary(min_size=2, max_size=2),
        st.none() | st.tuples(tags, tags),
    )
    | st.builds(EventPoint, tags, steps, tags, mappings_of(plain))
    | st.builds(MetadataPoint, tags, steps, mappings_of(plain))
)
"""Points of every kind."""


def emit(sink: object, points: Iterable[Point]) -> None:
    """Hand every point to the method of its kind."""
    for point in points:
        getattr(sink, CAPABILITY_METHODS[point.capability])(point)


def same(first: Iterable[Point], second: Iterable[Point]) -> bool:
    """Whether two series of points are the same in order, type and every bit (a NaN is a NaN)."""
    return [repr(point) for point in first] == [repr(point) for point in second]
