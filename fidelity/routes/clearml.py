"""ClearML's own path: series of a task and its artifacts, read back from the offline session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point, Refusal, ScalarPoint

from ..answers import raised_answer, stored_answer
from ..received import Received, Refused, from_result
from .asked import answered, hearing
from .base import Route, emit_each, refusal_of
from .clearml_resume import NO_OFFSET, SERVERS_OFFSET, resume_of

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
    refused = _emit(points, ClearMLSink(task), task)
    scalars = {(point.tag, point.step): point for point in points if isinstance(point, ScalarPoint)}
    asked = [scalars[item.tag, item.step] for item in refused if (item.tag, item.step) in scalars]
    return _with_clearmls_word(refused, asked, place) if asked else refused


def send_to_started(points: Sequence[Point], place: Path, *, start: Callable[[Path], Any]) -> list[Refused]:
    """Report the points to a task; if our sink refuses the task itself, ClearML is given the numbers by hand.

    They go into the same task under tags of their own, so that a refusal does not rest on our word alone.

    Args:
        points: What is reported.
        place: Where the session lies.
        start: Starts or continues the task.
    """
    from reference_sinks import ClearMLSink

    task = start(place)
    try:
        sink = ClearMLSink(task)
    except Refusal as refusal:
        scalars = [point for point in points if isinstance(point, ScalarPoint)]
        said = _report_all(task, scalars, session=task.get_offline_mode_folder())
        refused = [refusal_of(point, refusal) for point in points if point.capability in WORDS]
        return _answered(refused, said)
    return _emit(points, sink, task)


def _emit(points: Sequence[Point], sink: Any, task: Any) -> list[Refused]:
    refused = emit_each(sink, points, WORDS)
    sink.close()
    task.close()
    return refused


def read(place: Path) -> Received:
    """Read the offline session of the sink's task."""
    from reference_sinks.readers import read_clearml

    return from_result(read_clearml(place / "cache"))


def _with_clearmls_word(refused: Sequence[Refused], asked: Sequence[ScalarPoint], place: Path) -> list[Refused]:
    """Add what becomes of a refused number that is reported by hand, so that no refusal rests on our word alone."""
    import os

    from reference_sinks.clearml_offline import start_offline_task

    os.environ["CLEARML_CACHE_DIR"] = str(place / "asked" / "cache")
    return _answered(refused, _report_all(start_offline_task("asked"), asked, session=place / "asked" / "cache"))


def _answered(refused: Iterable[Refused], said: Mapping[tuple[str, int], str]) -> list[Refused]:
    answers = [(item, said.get((item.tag, item.step))) for item in refused]
    return [item if answer is None else answered(item, "ClearML", answer) for item, answer in answers]


def _report_all(task: Any, asked: Sequence[ScalarPoint], *, session: Path) -> dict[tuple[str, int], str]:
    """Report the numbers by hand, close the task, and say by (tag, step) what became of each."""
    from reference_sinks.readers import read_clearml

    said, warned = {}, {}
    for index, point in enumerate(asked):
        with hearing("clearml") as heard:
            try:
                task.get_logger().report_scalar("asked", str(index), point.value, point.step)
            except Exception as error:
                said[point.tag, point.step] = raised_answer(error)
        warned[index] = heard.anything
    task.close()
    stored = {p.tag: p for p in read_clearml(session) if isinstance(p, ScalarPoint)}
    for index, point in enumerate(asked):
        found = stored.get(f"asked/{index}")
        kept = None if found is None else replace(found, tag=point.tag)
        said.setdefault((point.tag, point.step), stored_answer(point, kept, warned=warned[index]))
    return said


ROUTE = Route(
    "clearml",
    "ClearML",
    "clearml",
    send,
    read,
    WORDS,
    environment=environment,
    resume=resume_of(send_to_started, from_result, tensorboard=False, offsets=(NO_OFFSET, SERVERS_OFFSET)),
)
