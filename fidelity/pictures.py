"""One sent histogram against what came back, and as the tracker shows it, drawn for each route."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point
from torchlens_conformance.protocol.compare import spread_evenly

from .charts import Chart, charted
from .grids import GRIDS
from .matching import StoredTag, match
from .received import Received
from .stimulus import grid_of

LEAF = "transformer.h.0.attn.c_attn.weight"
"""The tensor that is drawn."""

STEP = 100
"""The step that is drawn."""

_MOST_LABELS = 6

_HEIGHTS = "received heights; positions are not stored, drawn evenly"


def picture_data(
    sent: Sequence[Point], received: Received, stored_tag: StoredTag, chart: Chart = "none"
) -> dict[str, Any]:
    """Return, for each grid, the drawn histogram's sent counts and edges and the received mass on the same buckets.

    ``received`` is None where nothing came back, or heights without positions, which stand in ``heights``; ``buckets``
    is how many of either came back, and ``seen`` what the tracker's own page draws of it.
    """
    panels: dict[str, Any] = {}
    for grid in GRIDS:
        chosen = [
            p for p in sent if isinstance(p, HistogramPoint) and grid_of(p) == grid and p.tag.endswith(f"/{LEAF}")
        ]
        pairs = {
            p.step: r for p, r in match(chosen, received.histograms, lambda item: tuple(item.counts), stored_tag).pairs
        }
        point = next((p for p in chosen if p.step == STEP), None)
        if point is None:
            continue
        found = pairs.get(STEP)
        mass = heights = None
        if found is not None and found.edges is None:
            heights = list(found.counts)
        elif found is not None and found.edges is not None:
            mass = list(spread_evenly(found.counts, found.edges, point.edges)[0])
        panels[grid] = {
            "counts": list(point.counts),
            "edges": list(point.edges),
            "received": mass,
            "heights": heights,
            "buckets": None if found is None else len(found.counts),
            "seen": charted(chart, found, list(pairs.values())),
        }
    return panels


def draw(route_title: str, words: Mapping[str, str], panels: Mapping[str, Any], path: Path) -> None:
    """Draw one route's panels, a grid each, into an SVG file; the same data give the same bytes.

    Args:
        route_title: For the heading.
        words: The verdict of ``histogram-counts`` for each grid.
        panels: What :func:`picture_data` gave.
        path: The file to write.
    """
    with _figure(2, 2, path, height=5.2) as (figure, axes):
        for axis, (grid, panel) in zip(axes.flat, panels.items()):
            _draw_panel(axis, grid, words.get(grid, ""), panel)
        labels: dict[str, Any] = {}
        for axis in axes.flat:
            labels |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels())}
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=3, frameon=False)
        figure.suptitle(f"{route_title}: gradient of {LEAF} at step {STEP}, sent against received")


def draw_seen(route_title: str, panels: Mapping[str, Any], path: Path) -> None:
    """Draw what was sent beside what the tracker's own page draws from its store, a grid each, into an SVG file.

    Args:
        route_title: For the heading.
        panels: What :func:`picture_data` gave.
        path: The file to write.
    """
    with _figure(len(panels), 2, path, height=1.9 * len(panels)) as (figure, axes):
        for (left, right), (grid, panel) in zip(axes, panels.items()):
            _draw_sent(left, panel)
            left.set_title(f"{grid}, as it was sent at step {STEP}", fontsize=9)
            _draw_seen(right, panel["seen"])
        figure.suptitle(f"{route_title}: the gradient of {LEAF}, sent and as its page shows it")


@contextmanager
def _figure(rows: int, columns: int, path: Path, *, height: float) -> Iterator[tuple[Any, Any]]:
    """Give a figure and its axes to draw on, and write it to ``path`` whole."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style: dict[Any, Any] = {
        "svg.hashsalt": "fidelity",
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(rows, columns, figsize=(9, height), layout="constrained", squeeze=False)
        yield figure, axes
        partial = path.with_name(f"{path.name}.partial")
        figure.savefig(partial, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    partial.replace(path)


def _draw_seen(axis: Any, seen: Mapping[str, Any]) -> None:
    heights, edges, labels = seen["heights"], seen["edges"], seen["labels"]
    if heights is None:
        text = "no chart: the histogram is a file beside them" if seen["chart"] == "none" else "nothing came back"
        axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", color="#b3261e")
        axis.set_axis_off()
        return
    if edges is not None:
        axis.stairs(heights, edges, fill=True, color="#e0a100")
        axis.set_xlim(edges[0], edges[-1])
    else:
        axis.fill_between(range(len(heights)), heights, color="#e0a100", linewidth=0)
        apart = max(1, len(labels) // _MOST_LABELS)
        ticks = [index * len(heights) / max(len(labels), 1) for index in range(0, len(labels), apart)]
        axis.set_xticks(ticks, labels[::apart])
    axis.set_title(f"as the page shows it, at step {seen['step']}", fontsize=9)


def _draw_panel(axis: Any, grid: str, word: str, panel: Mapping[str, Any]) -> None:
    edges, received, heights = panel["edges"], panel["received"], panel["heights"]
    first, last = _draw_sent(axis, panel)
    if received is not None:
        axis.stairs(
            received[first:last], list(range(first, last + 1)), color="#b3261e", linewidth=0.9, label="received"
        )
    elif heights is not None:
        axis.plot(*_evenly(heights, edges), "o", color="#b3261e", markersize=3, label=_HEIGHTS)
        axis.set_xlim(first, last)
    else:
        axis.text(0.5, 0.6, "nothing came back", transform=axis.transAxes, ha="center", color="#b3261e")
    axis.set_title(f"{grid}: {word}", fontsize=9)
    axis.set_ylabel("elements in a sent bucket")


def _draw_sent(axis: Any, panel: Mapping[str, Any]) -> tuple[int, int]:
    """Draw what was sent, every bucket equally wide, and return the range of buckets that is shown."""
    counts, edges = panel["counts"], panel["edges"]
    first, last = _drawn_range(counts)
    axis.stairs(counts[first:last], list(range(first, last + 1)), fill=True, color="#c9d7e8", label="sent")
    ticks = [first + round(part * (last - first) / 4) for part in range(5)]
    axis.set_xticks(ticks, [f"{edges[tick]:.1e}" for tick in ticks])
    return first, last


def _drawn_range(counts: Sequence[int]) -> tuple[int, int]:
    """The buckets worth drawing: those that hold a thousandth of the fullest one, and what lies between."""
    full = max(counts)
    drawn = [index for index, count in enumerate(counts) if count * 1000 >= full]
    return max(min(drawn) - 1, 0), min(max(drawn) + 2, len(counts))


def _evenly(heights: Sequence[float], edges: Sequence[float]) -> tuple[list[int], list[float]]:
    """Place heights whose positions were not stored evenly from the first to the last edge, as bucket indices."""
    span = (edges[-1] - edges[0]) / max(len(heights) - 1, 1)
    return [min(bisect(edges, edges[0] + index * span), len(edges) - 1) for index in range(len(heights))], list(heights)
