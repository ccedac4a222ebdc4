"""From Comet's histogram asset to counts and edges (COMET-1).

Comet's histogram has one kind of grid: edges at ``offset``, ``offset + start * step**k`` and mirrored, up to ``stop``,
and two outermost buckets without an end. The asset holds the counts of occupied buckets and the four numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_EDGES = 100_000


@dataclass(frozen=True, slots=True)
class CometHistogram:
    """A decoded asset.

    Args:
        counts: Of the buckets between finite edges.
        edges: One more than counts.
        outside: Counts of the two buckets that have no end, below and above.
    """

    counts: tuple[int, ...]
    edges: tuple[float, ...]
    outside: tuple[int, int]


def decode_histogram(content: bytes) -> CometHistogram | None:
    """Return the histogram of an asset, or None for what is none."""
    try:
        asset = json.loads(content)
        edges = _edges(*(float(asset[key]) for key in ("offset", "start", "stop", "step")))
        return None if edges is None else _decoded(asset, edges)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return None


def _edges(offset: float, start: float, stop: float, step: float) -> list[float] | None:
    if not (0 < start < stop < math.inf and step > 1 and math.log(stop / start, step) < _MOST_EDGES // 2):
        return None
    distances = []
    # Step by step, as Comet does it: each edge then has the bits of Comet's own.
    distance = start
    while offset + distance <= stop:
        distances.append(distance)
        distance *= step
    return [*(offset - d for d in reversed(distances)), offset, *(offset + d for d in distances)]


def _decoded(asset: Mapping[str, Any], edges: list[float]) -> CometHistogram | None:
    counts = [0] * (len(edges) + 1)
    for index, count in asset["index_values"]:
        if type(index) is not int or type(count) is not int or index < 0 or count < 0:
            return None
        counts[index] += count
    return CometHistogram(tuple(counts[1:-1]), tuple(edges), (counts[0], counts[-1]))
