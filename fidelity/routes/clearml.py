"""ClearML's own path: series of a task and its artifacts, read back from the offline session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torchlens_conformance.protocol import Point, ScalarPoint

from ..received import Received, Refused, from_result
from .base import Route, emit_each

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What the ClearML sink carries of the stimulus."""


def environment(place: Path) -> Mapping[str, str]:
    """Keep ClearML offline and its cache inside ``place``."""
    from reference_sinks.clearml_offline import offline_environment

    return offline_environment(place)


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Report the points through our sink; what it refuses is given to ClearML itself as well, in a task of its own."""
    from reference_sinks import ClearMLSink
    from reference_sinks.clearml_offline import start_offline_task

    task = start_offline_task("native")
    sink = ClearMLSink(task)
    refused = emit_each(sink, points, WORDS)
    sink.close()
    task.close()
    scalars = {(point.tag, point.step): point for point in points if isinstance(point, ScalarPoint)}
    asked = [scalars[item.tag, item.step] for item in refused if (item.tag, item.step) in scalars]
    return _with_clearmls_word(refused, asked, place) if asked else refused


def read(place: Path) -> Received:
    """Read the offline session of the sink's task."""
    from reference_sinks.readers import read_clearml

    return from_result(read_clearml(place / "cache"))


def _with_clearmls_word(refused: Sequence[Refused], asked: Sequence[ScalarPoint], place: Path) -> list[Refused]:
    """Add what becomes of a refused number that is reported by hand, so that no refusal rests on our word alone."""
    said = _reported_by_hand(asked, place)
    return [
        Refused(
            item.tag, item.step, item.kind, f"{said.get((item.tag, item.step), 'our sink alone')}; ours: {item.reason}"
        )
        for item in refused
    ]


def _reported_by_hand(asked: Sequence[ScalarPoint], place: Path) -> dict[tuple[str, int], str]:
    import os

    from reference_sinks.clearml_offline import start_offline_task
    from reference_sinks.readers import read_clearml

    os.environ["CLEARML_CACHE_DIR"] = str(place / "asked" / "cache")
    task = start_offline_task("asked")
    said = {}
    for index, point in enumerate(asked):
        try:
            task.get_logger().report_scalar("asked", str(index), point.value, point.step)
        except Exception as error:
            said[point.tag, point.step] = f"ClearML itself: {type(error).__name__}: {error}"
    task.close()
    stored = {p.tag: p.value for p in read_clearml(place / "asked" / "cache") if isinstance(p, ScalarPoint)}
    for index, point in enumerate(asked):
        if f"asked/{index}" in stored:
            said[point.tag, point.step] = f"ClearML itself stores {stored[f'asked/{index}']!r} for {point.value!r}"
    return said


ROUTE = Route("clearml", "ClearML", "clearml", send, read, WORDS, environment=environment)
