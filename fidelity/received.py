"""What a store gave back, arranged by kind and series, whatever the tracker (FID-1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from reference_sinks.readers import ReadResult
from torchlens_conformance.protocol import GraphPoint, HistogramPoint, Point, ScalarPoint, TextPoint

from .answers import NOT_ASKED
from .probes import item_name

FEW_ITEMS = 13
"""More items than any row of probes has are counted, not named."""


@dataclass(frozen=True, slots=True)
class ReceivedScalar:
    """One number found in the store."""

    tag: str
    step: int | None
    value: int | float


@dataclass(frozen=True, slots=True)
class ReceivedHistogram:
    """One histogram found in the store; counts need not be integers and edges may be missing.

    Args:
        tag: The series, as it is stored.
        step: The step, as it is stored.
        counts: As many as were stored.
        edges: One more than counts, or None when positions were not stored.
        summary: The fields that were stored.
        edge_labels: Texts that stand for some of the positions.
        step_label: A text that stands for the step.
    """

    tag: str
    step: int | None
    counts: tuple[int | float, ...]
    edges: tuple[float, ...] | None
    summary: Mapping[str, object] = field(default_factory=dict)
    edge_labels: tuple[str, ...] = ()
    step_label: str | None = None


@dataclass(frozen=True, slots=True)
class ReceivedText:
    """One text found in the store."""

    tag: str
    step: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A point that was not taken: by our sink with a code, or by the tracker with an exception.

    Args:
        tag: The series.
        step: The step.
        kind: The word of its capability.
        reason: What was raised, and what the tracker itself does, at length.
        itself: What the tracker itself does with the same point when it is given by hand, in a few words that are the
            same from run to run (:mod:`fidelity.answers`).
    """

    tag: str
    step: int
    kind: str
    reason: str
    itself: str = NOT_ASKED


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


def from_points(points: Iterable[Point]) -> Received:
    """Arrange points as received ones."""
    kept = tuple(points)
    return Received(
        scalars=tuple(ReceivedScalar(p.tag, p.step, p.value) for p in kept if isinstance(p, ScalarPoint)),
        histograms=tuple(
            ReceivedHistogram(p.tag, p.step, p.counts, p.edges, p.summary)
            for p in kept
            if isinstance(p, HistogramPoint)
        ),
        texts=tuple(ReceivedText(p.tag, p.step, p.text) for p in kept if isinstance(p, TextPoint)),
        graphs=tuple(p.graph for p in kept if isinstance(p, GraphPoint)),
    )


def from_result(result: ReadResult, *, logged: Sequence[str] = ()) -> Received:
    """Arrange what a reader gave: its points, and the histograms among what it could not place.

    A histogram with fractional counts, or without edges, is no point of the protocol; a reader reports it as unplaced,
    with ``tag``, ``step``, ``counts`` and ``edges`` in its content.
    """
    received = from_points(result.points)
    odd = tuple(
        ReceivedHistogram(
            str(item.content["tag"]), _step(item.content["step"]), _tuple(item.content["counts"]), _edges(item.content)
        )
        for item in result.unplaced
        if {"tag", "step", "counts", "edges"} <= item.content.keys()
    )
    return replace(received, histograms=(*received.histograms, *odd), logged=tuple(logged), notes=result.notes)


def joined(*parts: Received) -> Received:
    """Return what several stores of one run hold together, in their order."""
    return Received(
        **{item.name: tuple(entry for part in parts for entry in getattr(part, item.name)) for item in fields(Received)}
    )


def with_histograms(received: Received, histograms: Iterable[ReceivedHistogram]) -> Received:
    """Return ``received`` with further histograms behind its own."""
    return replace(received, histograms=(*received.histograms, *histograms))


def tracker_itself(received: Received, missing: Iterable[Any]) -> dict[str, str]:
    """Return by name what the tracker itself does with each missing point that was refused; many alike are counted.

    Args:
        received: What came back, with what was refused.
        missing: Sent points that did not come back.
    """
    answers = {(item.tag, item.step): item.itself for item in received.refused}
    found = [(point, answers[point.tag, point.step]) for point in missing if (point.tag, point.step) in answers]
    if len(found) <= FEW_ITEMS:
        return {item_name(point): answer for point, answer in found}
    counted: dict[str, str] = {}
    for (kind, answer), number in Counter((_KINDS[point.capability], answer) for point, answer in found).items():
        name = f"{number} {kind}"
        while name in counted:
            name = name.replace(" ", " other ", 1)
        counted[name] = answer
    return counted


def lost_items(received: Received, missing: Iterable[Any]) -> dict[str, list[str]]:
    """Return, as ``missing``, the names of what did not arrive and was not refused; nothing where there is none.

    Args:
        received: What came back, with what was refused.
        missing: Sent points that did not come back.
    """
    refused = {(item.tag, item.step) for item in received.refused}
    names = [item_name(point) for point in missing if (point.tag, point.step) not in refused]
    return {"missing": names} if names else {}


_KINDS = {"scalar": "scalars", "raw_histogram": "histograms", "text_manifest": "texts"}


def _step(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _tuple(values: object) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"counts and edges are sequences, not {type(values).__name__}")
    return tuple(values)


def _edges(content: Mapping[str, object]) -> tuple[float, ...] | None:
    return None if content["edges"] is None else _tuple(content["edges"])
