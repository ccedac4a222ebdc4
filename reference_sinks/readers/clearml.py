"""Reading ClearML's offline session: every event, plain JSON, without clearml (FID-1)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point

from .clearml_events import EventPlacer, events
from .clearml_points import is_points_artifact, points_artifacts, points_of_artifact
from .clearml_session import CONSOLE, METRICS, READER, TASK, Session, find_session
from .clearml_tags import TagReader
from .damage import Damage
from .refusing import damage_refusal, empty_refusal, torn_text
from .result import ReadResult, Unplaced


def read_clearml(
    path: str | os.PathLike[str], *, allow_torn: bool = False, known_tags: Iterable[str] = ()
) -> ReadResult:
    """Read every event of an offline session, in stored order.

    Placed: scalars; histograms and texts that ClearMLSink stored as artifacts, behind the scalars and in the order in
    which they were written; texts of the relay (media with a ``.txt`` file; the suffix that torch gives to the tag is
    removed, and noted). The step is ClearML's ``iter``, and the caller's own in ClearMLSink's artifacts. Everything
    else that was stored is in ``unplaced``: other plots and media, single values without a step, console text, other
    artifacts (with ``file``, their path in the session).

    Histograms of the TensorBoard relay are no histograms any more: each is a plot of a surface, its reason is
    ``histogram surface``, and its content has ``tag``, ``step`` (ClearML stores 0), ``z`` (rows of floats, one for each
    histogram), ``x_labels`` (texts of two decimals, most of them empty) and ``y_labels`` (a text for each row, its step
    or empty). A series has a plot for each of its first five histograms, then for every fifth, each with all rows so
    far, at most 49; the plot of a single histogram has a row of zeros in front, for which there is no label.

    What the store cannot say: a tag. It holds a metric and a variant, and the relay puts ``_`` for the slashes in them
    (see :func:`~reference_sinks.readers.clearml_tags.relayed_tag`). A tag here is ``metric/variant`` as stored, unless
    exactly one of ``known_tags`` is stored under that name; notes count both. What ClearML changed before it stored
    cannot be seen here either: NaN and infinities are 0.0 by default, and a step that falls behind is moved ahead.

    Args:
        path: The folder of a session, its zip, or ClearML's cache folder (or its ``offline`` folder) with exactly one.
        allow_torn: Read files that are cut up to their last whole event, and say so in ``torn``. A cut zip cannot be
            read: its directory is at its end.
        known_tags: Tags that may have been sent.

    ``closed`` is True for a zip or a folder with its zip beside it, False where that is missing at the very place that
    the session names as its own, else None.

    Raises ``reader_path_missing``, ``reader_file_empty`` (no bytes, or a folder without a session),
    ``reader_file_foreign``, ``reader_path_ambiguous`` (a folder with several sessions), ``reader_file_truncated`` and
    ``reader_file_corrupt`` (with ``offset`` and ``points_before``). A session to which nothing was reported has no
    metrics file; it has no points, and a note. A console file without bytes is one that a killed process just made.

    Clause: FID-1, POINT-3.
    """
    place = find_session(Path(path))
    try:
        session = Session(place)
    except Damage as damage:
        raise damage_refusal(damage, place, reader=READER, points_before=0) from None
    try:
        return _Reading(session, allow_torn, known_tags).result()
    finally:
        session.close()


class _Reading:
    """One pass over the files of a session."""

    def __init__(self, session: Session, allow_torn: bool, known_tags: Iterable[str]) -> None:
        self.session = session
        self.allow_torn = allow_torn
        self.points: list[Point] = []
        self.unplaced: list[Unplaced] = []
        self.torn: list[str] = []
        self.notes: Counter[str] = Counter()
        self.tags = TagReader(known_tags, self.notes)

    def result(self) -> ReadResult:
        notes = []
        if self.session.holds(METRICS):
            self._place_all(METRICS)
        else:
            notes.append(f"there is no {METRICS}: nothing was reported")
        if self.session.holds(CONSOLE) and self.session.content(CONSOLE):
            self._place_all(CONSOLE)
        task = self._task()
        for name in points_artifacts(self.session):
            self._place_artifact(name)
        self._leave_artifacts(task)
        notes += [f"{text}: {count}" for text, count in sorted(self.notes.items())]
        return ReadResult(
            tuple(self.points),
            tuple(self.unplaced),
            torn="; ".join(self.torn) or None,
            closed=self.session.closed(task),
            reader=READER,
            notes=tuple(notes),
        )

    def _place_all(self, name: str) -> None:
        found, damage = self._events(name)
        last_use = {event["key"]: where for where, event in found if isinstance(event.get("key"), str)}
        placer = EventPlacer(self.session, self.tags, self.points, self.unplaced, last_use)
        for where, event in found:
            try:
                placer.place(event, where)
            except Damage as member_damage:
                self._refuse_or_note(member_damage, name)
        if damage is not None:
            self._refuse_or_note(damage, name)

    def _place_artifact(self, name: str) -> None:
        try:
            points_of_artifact(name, self.session.content(name), self.points, self.unplaced)
        except Damage as damage:
            self._refuse_or_note(damage, name)

    def _events(self, name: str) -> tuple[list[tuple[str, dict[str, Any]]], Damage | None]:
        found: list[tuple[str, dict[str, Any]]] = []
        try:
            content = self.session.content(name)
            if not content and self.allow_torn:
                raise Damage("truncated", 0, "the file has no bytes")
            if not content:
                raise empty_refusal(self.session.path / name, "the file has no bytes", reader=READER)
            for where, event in events(content):
                found.append((name + where, event))
        except Damage as damage:
            return found, damage
        return found, None

    def _task(self) -> dict[str, Any]:
        try:
            return self.session.task()
        except Damage as damage:
            self._refuse_or_note(damage, TASK)
            return {}

    def _refuse_or_note(self, damage: Damage, name: str) -> None:
        if damage.kind != "truncated" or not self.allow_torn:
            place = self.session.path / name
            raise damage_refusal(damage, place, reader=READER, points_before=len(self.points)) from None
        self.torn.append(torn_text(damage, self.session.path / name, size=len(self.session.content(name))))

    def _leave_artifacts(self, task: dict[str, Any]) -> None:
        """Artifacts are files whose meaning only their sender knows; those of ClearMLSink are read already."""
        execution = task.get("execution")
        artifacts = execution.get("artifacts") if isinstance(execution, dict) else None
        for artifact in artifacts if isinstance(artifacts, list) else ():
            file = str(artifact.get("uri")).removeprefix(f"{task.get('offline_folder')}/")
            if is_points_artifact(file) and self.session.holds(file):
                continue
            content = {key: artifact.get(key) for key in ("key", "type", "content_size", "hash")}
            self.unplaced.append(Unplaced(TASK, "an artifact", {**content, "file": file}))
