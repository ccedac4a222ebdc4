"""One sent histogram against what came back, drawn for each route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point
from torchlens_conformance.protocol.compare import spread_evenly

from .grids import GRIDS
from .measure import StoredTag, match
from .received import Received
from .stimulus import grid_of

LEAF = "transformer.h.0.attn.c_attn.weight"
"""The tensor that is drawn."""

STEP = 104
"""The step that is drawn."""


def picture_data(sent: Sequence[Point], received: Received, stored_tag: StoredTag) -> dict[str, Any]:
    """Return, for each grid, the drawn histogram's sent counts and edges and the received mass on the same buckets.

    ``received`` is None where nothing came back; ``buckets`` is how many buckets came back.
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
        mass = None
        if found is not None and found.edges is not None:
            mass = list(spread_evenly(found.counts, found.edges, point.edges)[0])
        panels[grid] = {
            "counts": list(point.counts),
            "edges": list(point.edges),
            "received": mass,
            "buckets": None if found is None else len(found.counts),
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
        figure, axes = pyplot.subplots(2, 2, figsize=(9, 5.2), layout="constrained")
        for axis, (grid, panel) in zip(axes.flat, panels.items()):
            _draw_panel(axis, grid, words.get(grid, ""), panel)
        figure.suptitle(f"{route_title}: gradient of {LEAF} at step {STEP}, sent against received")
        partial = path.with_name(f"{path.name}.partial")
        figure.savefig(partial, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    partial.replace(path)


def _draw_panel(axis: Any, grid: str, word: str, panel: Mapping[str, Any]) -> None:
    counts, edges, received = panel["counts"], panel["edges"], panel["received"]
    drawn = [index for index, count in enumerate(counts) if count or (received and received[index] > 0.5)]
    first, last = min(drawn), max(drawn) + 1
    positions = list(range(first, last + 1))
    axis.stairs(counts[first:last], positions, fill=True, color="#c9d7e8", label="sent")
    if received is None:
        axis.text(0.5, 0.6, "nothing came back", transform=axis.transAxes, ha="center", color="#b3261e")
    else:
        axis.stairs(received[first:last], positions, color="#b3261e", linewidth=0.9, label="received")
    ticks = [first + round(part * (last - first) / 4) for part in range(5)]
    axis.set_xticks(ticks, [f"{edges[tick]:.1e}" for tick in ticks])
    axis.set_title(f"{grid}: {word}", fontsize=9)
    axis.set_ylabel("elements in a sent bucket")
    axis.legend(frameon=False, loc="upper right")
