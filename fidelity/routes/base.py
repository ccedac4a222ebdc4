"""What a route is: a way from points to a tracker's store, and the way back (FID-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchlens_conformance.protocol import CAPABILITY_METHODS, GraphPoint, Point

from ..charts import Chart
from ..received import Received, Refused
from .resuming import Resume


@dataclass(frozen=True, slots=True)
class Route:
    """One column of the table.

    Args:
        id: The column's id.
        title: The column's heading.
        distribution: The package whose version the column is measured for; None for the controls.
        send: ``send(points, place)``: emit all points into a store under the empty folder ``place``, close it, and
            return what was refused. It never looks at what is expected.
        read: ``read(place)``: read the store back, in a process of its own.
        send_writer_first: The same as ``send`` with the writer constructed before the relay; None without a relay.
        environment: ``environment(place)``: environment variables that the sending process needs.
        capabilities: The words that the route's sink advertises.
        stored_tag: ``stored_tag(tag, capability)``: the name under which the store keeps a series, where the tracker
            renames it by rule; it serves to find series again, never to judge tags.
        chart: How the tracker's own page draws a histogram that it stores.
        resume: How a run is ended and continued; None where a run cannot be continued.
    """

    id: str
    title: str
    distribution: str | None
    send: Callable[[Sequence[Point], Path], list[Refused]]
    read: Callable[[Path], Received]
    capabilities: frozenset[str]
    send_writer_first: Callable[[Sequence[Point], Path], list[Refused]] | None = None
    environment: Callable[[Path], Mapping[str, str]] = lambda place: {}
    stored_tag: Callable[[str, str], str] = lambda tag, capability: tag
    chart: Chart = "none"
    resume: Resume | None = None


def emit_each(sink: object, points: Sequence[Point], capabilities: frozenset[str]) -> list[Refused]:
    """Emit every point that the sink advertises, one by one; what raises is noted and the next one is tried.

    A ledger would latch the sink at its first refusal; here every point must have its own chance.
    """
    refused = []
    for point in points:
        if point.capability not in capabilities:
            continue
        try:
            getattr(sink, CAPABILITY_METHODS[point.capability])(point)
        except Exception as error:
            refused.append(refusal_of(point, error))
    return refused


def refusal_of(point: Point, error: Exception) -> Refused:
    """Note that ``point`` raised ``error``."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(point, GraphPoint):
        return Refused("", 0, point.capability, reason)
    return Refused(point.tag, point.step, point.capability, reason)
