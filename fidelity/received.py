"""What a store gave back, arranged by kind and series, whatever the tracker (FID-1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reference_sinks.readers import ReadResult
from torchlens_conformance.protocol import GraphPoint, HistogramPoint, Point, ScalarPoint, TextPoint


@dataclass(frozen=True, slots=True)
class ReceivedScalar:
    """One number found in the store."""

    tag: str
    step: int | None
    value: int | float


@dataclass(frozen=True, slots=True)
class ReceivedHistogram:
    """One histogram found in the store; counts need not be integers and edges may be missing."""

    tag: str
    step: int | None
    counts: tuple[int | float, ...]
    edges: tuple[float, ...] | None
    summary: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReceivedText:
    """One text found in the store."""

    tag: str
    step: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A point that was not taken: by our sink with a code, or by the tracker with an exception."""

    tag: str
    step: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Received:
    """Everything that one route gave back.

    Args:
        scalars: In stored order.
        histograms: In stored order.
        texts: In stored order.
        graphs: In stored order.
        refused: Points that raised when they were sent.
        shown: Lines that the tracker printed to the user while sending.
        logged: Lines that stand only in a log file of the tracker.
        notes: What the reader had to infer.
    """

    scalars: tuple[ReceivedScalar, ...] = ()
    histograms: tuple[ReceivedHistogram, ...] = ()
    texts: tuple[ReceivedText, ...] = ()
    graphs: tuple[Mapping[str, object], ...] = ()
    refused: tuple[Refused, ...] = ()
    shown: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def from_points(
    points: Sequence[Point],
    *,
    histograms: Sequence[ReceivedHistogram] = (),
    refused: Sequence[Refused] = (),
    shown: Sequence[str] = (),
    logged: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Received:
    """Arrange points as received ones; ``histograms`` adds those that are no points of the protocol."""
    return Received(
        scalars=tuple(ReceivedScalar(p.tag, p.step, p.value) for p in points if isinstance(p, ScalarPoint)),
        histograms=(
            *(
                ReceivedHistogram(p.tag, p.step, p.counts, p.edges, p.summary)
                for p in points
                if isinstance(p, HistogramPoint)
            ),
            *histograms,
        ),
        texts=tuple(ReceivedText(p.tag, p.step, p.text) for p in points if isinstance(p, TextPoint)),
        graphs=tuple(p.graph for p in points if isinstance(p, GraphPoint)),
        refused=tuple(refused),
        shown=tuple(shown),
        logged=tuple(logged),
        notes=tuple(notes),
    )


def surface_histograms(result: ReadResult) -> list[ReceivedHistogram]:
    """Turn ClearML's histogram surfaces, which are no points, into received histograms.

    Each stored surface of a series repeats the ones before it; only rows that a later surface adds are new.
    """
    latest: dict[str, Mapping[str, object]] = {}
    for item in result.unplaced:
        if item.reason == "histogram surface":
            latest[str(item.content["tag"])] = item.content
    histograms = []
    for tag, content in latest.items():
        histograms.extend(_surface_rows(tag, content))
    return histograms


def _surface_rows(tag: str, content: Mapping[str, object]) -> list[ReceivedHistogram]:
    raise NotImplementedError


def by_tag(items: Sequence[ReceivedScalar]) -> dict[str, list[ReceivedScalar]]:
    """Group scalars by tag, keeping the order."""
    grouped: dict[str, list[ReceivedScalar]] = defaultdict(list)
    for item in items:
        grouped[item.tag].append(item)
    return grouped
