"""How a tracker's own page draws a stored histogram: what a person sees, from what the store holds (FID-1).

- ``thirty bins``: TensorBoard pours the stored buckets of all steps into 30 equal bins from the smallest to the
  largest value, each bucket spread evenly (the page's own code, TensorBoard 2.21.0). Before that its server leaves out
  empty outer buckets and puts min and max in place of the outer edges.
- ``bars``: a bar for each stored bucket over a linear axis, as wandb does.
- ``surface``: a row of heights for each step, evenly spaced, with the labels that were stored, as ClearML does.
- ``none``: the histogram is a file or a text beside the charts; no page draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from torchlens_conformance.protocol.compare import spread_evenly

from .received import ReceivedHistogram

Chart: TypeAlias = Literal["thirty bins", "bars", "surface", "none"]
"""A way of drawing."""

_BINS = 30


def charted(chart: Chart, found: ReceivedHistogram | None, series: Sequence[ReceivedHistogram]) -> dict[str, Any]:
    """Return what a page would draw of one histogram.

    Args:
        chart: How the tracker draws.
        found: The histogram as it was stored, None when nothing came back.
        series: All histograms of its series; some pages choose one range for all of them.

    Returns:
        ``heights`` with ``edges`` (one more), or with ``labels`` at even distances in place of edges; all None when
        there is nothing to draw. ``step`` is the text of the step at which it is drawn.
    """
    nothing: dict[str, Any] = {"chart": chart, "heights": None, "edges": None, "labels": None, "step": None}
    if found is None or chart == "none":
        return nothing
    step = found.step_label if found.step_label is not None else str(found.step)
    if found.edges is None:
        return nothing | {"heights": list(found.counts), "labels": list(found.edge_labels), "step": step}
    if chart == "thirty bins":
        edges = _common_bins([item for item in series if item.edges is not None])
        counts, limits = _served(found)
        heights = list(spread_evenly(counts, limits, edges)[0]) if counts else [0.0] * _BINS
        return nothing | {"heights": heights, "edges": edges, "step": step}
    return nothing | {"heights": list(found.counts), "edges": list(found.edges), "step": step}


def _served(found: ReceivedHistogram) -> tuple[list[float], list[float]]:
    """Return counts and edges as TensorBoard's server gives them to the page."""
    filled = [index for index, count in enumerate(found.counts) if count > 0]
    if not filled or found.edges is None:
        return [], []
    first, last = filled[0], filled[-1]
    low = _number(found.summary, "min", found.edges[first])
    high = _number(found.summary, "max", found.edges[last + 1])
    inner = list(found.edges[first + 1 : last + 1])
    edges = [low, *inner, high]
    if any(right <= left for left, right in pairwise(edges)):
        edges = list(found.edges[first : last + 2])
    return [float(count) for count in found.counts[first : last + 1]], edges


def _number(summary: Mapping[str, object], name: str, otherwise: float) -> float:
    value = summary.get(name)
    return float(value) if isinstance(value, (int, float)) else otherwise


def _common_bins(series: Sequence[ReceivedHistogram]) -> list[float]:
    served = [edges for _, edges in map(_served, series) if edges]
    low = min((edges[0] for edges in served), default=0.0)
    high = max((edges[-1] for edges in served), default=0.0)
    if low == high:
        low, high = low / 1.1 - 1, high * 1.1 + 1
    return [low + (high - low) * index / _BINS for index in range(_BINS + 1)]
