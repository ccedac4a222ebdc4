"""Hypothesis strategies for every point of the protocol, for tests of sinks, readers and encodings.

They explore and shrink; a certificate never depends on them. Needs the package ``hypothesis``.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from hypothesis import strategies as st

from ..protocol import (
    CAPABILITY_METHODS,
    LARGEST_STEP,
    SUMMARY_FIELDS,
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
from ..protocol.tags import UNSAFE_CHARACTERS

_ITEM_SIZES = {"uint8": 1, "int32": 4, "float16": 2, "float32": 4, "float64": 8}
_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in UNSAFE_CHARACTERS and chr(code) != "/")


def tags(*, safe: bool = True) -> st.SearchStrategy[str]:
    """Tags: safe ones in the sense of TAG-3, or any text at all. Clause: TAG-3."""
    if not safe:
        return st.text(max_size=40)
    components = st.text(_SAFE, min_size=1, max_size=12).filter(lambda text: text not in (".", ".."))
    return st.lists(components, min_size=1, max_size=4).map("/".join)


def steps(*, largest: int = LARGEST_STEP) -> st.SearchStrategy[int]:
    """Steps from 0 to ``largest``, the borders more often than chance has them. Clause: POINT-3."""
    borders = [step for step in (0, 1, 2**31 - 1, 2**31, 2**53 + 1, LARGEST_STEP) if step <= largest]
    return st.sampled_from(borders) | st.integers(0, largest)


def values(*, nonfinite: bool = True) -> st.SearchStrategy[int | float]:
    """Numbers: every float (NaN and the infinities unless left out) and integers of 64 bits. Clause: POINT-3."""
    return st.floats(allow_nan=nonfinite, allow_infinity=nonfinite) | st.integers(-(2**63), 2**63 - 1)


def texts() -> st.SearchStrategy[str]:
    """Any text that has a UTF-8 form. Clause: POINT-1."""
    return st.text(st.characters(codec="utf-8"), max_size=60)


def mappings() -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of plain values, nested, as payloads and metadata hold them. Clause: POINT-2."""
    leaves: st.SearchStrategy[Any] = st.none() | st.booleans() | values() | texts()
    nested = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=6,
    )
    return st.dictionaries(texts(), nested, max_size=4)


def scalar_points(*, safe: bool = True, nonfinite: bool = True) -> st.SearchStrategy[ScalarPoint]:
    """Scalars. Clause: POINT-1, POINT-3."""
    return st.builds(ScalarPoint, tags(safe=safe), steps(), values(nonfinite=nonfinite))


@st.composite
def histogram_points(draw: st.DrawFn, *, safe: bool = True, most_buckets: int = 12) -> HistogramPoint:
    """Histograms with finite, strictly increasing edges and a summary of any fields. Clause: POINT-2."""
    count = draw(st.integers(1, most_buckets))
    finite = st.floats(allow_nan=False, allow_infinity=False)
    # -0.0 and 0.0 are one edge, though two floats.
    edges = draw(st.lists(finite, min_size=count + 1, max_size=count + 1, unique_by=lambda edge: edge + 0.0))
    counts = draw(st.lists(st.integers(0, 2**60), min_size=count, max_size=count))
    fields = st.dictionaries(st.sampled_from(SUMMARY_FIELDS), finite, max_size=len(SUMMARY_FIELDS))
    return HistogramPoint(draw(tags(safe=safe)), draw(steps()), tuple(counts), tuple(sorted(edges)), draw(fields))


def text_points(*, safe: bool = True) -> st.SearchStrategy[TextPoint]:
    """Texts. Clause: POINT-1."""
    return st.builds(TextPoint, tags(safe=safe), steps(), texts())


@st.composite
def image_points(draw: st.DrawFn, *, safe: bool = True) -> ImagePoint:
    """Small images of uint8 with one, three or four channels. Clause: POINT-1."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from((1, 3, 4))))
    size = prod(shape)
    data = draw(st.binary(min_size=size, max_size=size))
    return ImagePoint(draw(tags(safe=safe)), draw(steps()), data, shape, "uint8")


@st.composite
def embedding_points(draw: st.DrawFn, *, safe: bool = True) -> EmbeddingPoint:
    """Small tables of vectors of several types, with labels or without. Clause: POINT-1."""
    shape = (draw(st.integers(0, 4)), draw(st.integers(1, 3)))
    dtype = draw(st.sampled_from(sorted(_ITEM_SIZES)))
    size = prod(shape) * _ITEM_SIZES[dtype]
    data = draw(st.binary(min_size=size, max_size=size))
    labels = draw(st.none() | st.lists(texts(), min_size=shape[0], max_size=shape[0]).map(tuple))
    return EmbeddingPoint(draw(tags(safe=safe)), draw(steps()), data, shape, dtype, labels)


@st.composite
def graph_points(draw: st.DrawFn) -> GraphPoint:
    """Graphs without a cycle, whose nodes take earlier nodes. Clause: POINT-1."""
    names = draw(st.lists(tags(), min_size=1, max_size=5, unique=True))
    nodes = []
    for index, name in enumerate(names):
        inputs = draw(st.lists(st.sampled_from(names[:index]), max_size=2)) if index else []
        nodes.append({"name": name, "op": draw(st.sampled_from(("add", "matmul", "relu"))), "inputs": inputs})
    return GraphPoint({"nodes": nodes})


def event_points(*, safe: bool = True) -> st.SearchStrategy[EventPoint]:
    """Structured events. Clause: POINT-1."""
    return st.builds(EventPoint, tags(safe=safe), steps(), texts(), mappings())


def metadata_points(*, safe: bool = True) -> st.SearchStrategy[MetadataPoint]:
    """Facts about the run. Clause: POINT-1."""
    return st.builds(MetadataPoint, tags(safe=safe), steps(), mappings())


def points(capabilities: Iterable[str] = CAPABILITY_METHODS, *, safe: bool = True) -> st.SearchStrategy[Point]:
    """Points of any of the given capability words. Clause: PROT-2, POINT-1.

    Raises ``ValueError`` for no words, which would make a test that tests nothing.
    """
    by_word: dict[str, st.SearchStrategy[Any]] = {
        "scalar": scalar_points(safe=safe),
        "raw_histogram": histogram_points(safe=safe),
        "text_manifest": text_points(safe=safe),
        "image": image_points(safe=safe),
        "graph": graph_points(),
        "run_metadata": metadata_points(safe=safe),
        "structured_event": event_points(safe=safe),
        "embedding_module": embedding_points(safe=safe),
    }
    chosen = [by_word[word] for word in by_word if word in frozenset(capabilities)]
    if not chosen:
        raise ValueError("no capability word was given, so there is nothing to draw")
    return st.one_of(chosen)
