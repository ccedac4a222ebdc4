"""Defects of delivery: points that are lost, doubled, invented, moved, renamed or changed in the caller's hands."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from reference_sinks.readers.result import ReadResult
from torchlens_conformance.protocol import FrozenMapping, GraphPoint, Point, ScalarPoint

from .base import Defect, PlainSink, encode_line, planted, read_plain
from .scalar_defects import AlteringSink


class NullSink(PlainSink):
    """Everything is taken and nothing is kept."""

    def append(self, line: bytes) -> None:
        """Drop the line."""


class DropsLast(PlainSink):
    """The last point is lost at close."""

    _last = 0

    def append(self, line: bytes) -> None:
        """Remember where the last line starts."""
        super().append(line)
        self._last = len(line)

    def sync(self) -> None:
        """Cut the last line off when the sink is being closed."""
        if self._closed:
            os.ftruncate(self._file, self._size - self._last)
        super().sync()


class DropsFirst(PlainSink):
    """The first point is lost."""

    _started = False

    def append(self, line: bytes) -> None:
        """Drop the first line."""
        if self._started:
            super().append(line)
        self._started = True


class DropsEveryTenth(PlainSink):
    """Every tenth point is lost."""

    _taken = 0

    def append(self, line: bytes) -> None:
        """Drop one line in ten."""
        self._taken += 1
        if self._taken % 10:
            super().append(line)


class Duplicates(PlainSink):
    """Every tenth point is stored twice."""

    _taken = 0

    def append(self, line: bytes) -> None:
        """Write one line in ten twice."""
        self._taken += 1
        super().append(line if self._taken % 10 else line + line)


class AddsOwnPoint(PlainSink):
    """A point that nobody sent is stored."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.append(encode_line(ScalarPoint("sink/alive", 0, 1)))


def read_newest_first(place: Path) -> ReadResult:
    """Points come back in reverse order."""
    found = read_plain(place)
    return replace(found, points=found.points[::-1])


def read_by_value(place: Path) -> ReadResult:
    """Within a series, points come back ordered by value."""
    found = read_plain(place)
    scalars = iter(sorted((p for p in found.points if isinstance(p, ScalarPoint)), key=_by_value))
    return replace(found, points=tuple(next(scalars) if isinstance(p, ScalarPoint) else p for p in found.points))


def _by_value(point: ScalarPoint) -> tuple[str, float]:
    return point.tag, float(point.value) if point.value == point.value else 0.0


def read_last_of_each_step(place: Path) -> ReadResult:
    """Of several points of one series and step, the last one replaces the others."""
    found = read_plain(place)
    kept: dict[object, Point] = {}
    for index, point in enumerate(found.points):
        kept[index if isinstance(point, GraphPoint) else (type(point), point.tag, point.step)] = point
    return replace(found, points=tuple(kept.values()))


class SwapsTags(AlteringSink):
    """Every point is stored under the tag of the point before it."""

    _previous: str | None = None

    def alter(self, point: Point) -> Point:
        """Exchange the tag."""
        if isinstance(point, GraphPoint):
            return point
        tag, self._previous = self._previous, point.tag
        return point if tag is None else replace(point, tag=tag)


class SanitizesTags(AlteringSink):
    """Characters of tags other than letters, digits and ``_-./`` become underscores."""

    def alter(self, point: Point) -> Point:
        """Rewrite the tag."""
        return point if isinstance(point, GraphPoint) else replace(point, tag=re.sub(r"[^\w\-./]", "_", point.tag))


class FoldsTags(AlteringSink):
    """Tags are stored in lower case."""

    def alter(self, point: Point) -> Point:
        """Rewrite the tag."""
        return point if isinstance(point, GraphPoint) else replace(point, tag=point.tag.lower())


class CutsTags(AlteringSink):
    """Tags are cut to 250 characters."""

    def alter(self, point: Point) -> Point:
        """Rewrite the tag."""
        return point if isinstance(point, GraphPoint) else replace(point, tag=point.tag[:250])


_EMPTIED: dict[str, Any] = {
    "value": 0,
    "counts": (),
    "text": "",
    "data": b"",
    "graph": FrozenMapping(),
    "payload": FrozenMapping(),
    "metadata": FrozenMapping(),
}


class MutatesInput(PlainSink):
    """The caller's point is emptied once it is written."""

    def emit(self, point: Point) -> None:
        """Write the point, then take its content away."""
        super().emit(point)
        for name, empty in _EMPTIED.items():
            if hasattr(point, name):
                object.__setattr__(point, name, empty)


class CachesByAddress(PlainSink):
    """A point is taken for one that was written before when it stands at the same address in memory."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._lines: dict[tuple[type, int], bytes] = {}

    def emit(self, point: Point) -> None:
        """Encode each address once."""
        self.require_usable()
        with self._lock:
            self.append(self._lines.setdefault((type(point), id(point)), encode_line(point)))


STREAM_DEFECTS: tuple[Defect, ...] = (
    planted("null", "delivery.nothing-lost", sink=NullSink),
    planted("drops-last", "delivery.nothing-lost", sink=DropsLast),
    planted("drops-first", "delivery.nothing-lost", sink=DropsFirst),
    planted("drops-every-tenth", "delivery.nothing-lost", sink=DropsEveryTenth),
    planted("duplicates", "delivery.nothing-twice", sink=Duplicates),
    planted("adds-own-point", "delivery.nothing-extra", sink=AddsOwnPoint),
    planted("newest-first", "order.kept", read=read_newest_first),
    planted("ordered-by-value", "order.kept", read=read_by_value),
    planted("last-writer-wins", "delivery.nothing-lost", read=read_last_of_each_step),
    planted("swapped-tags", "tags.unchanged", sink=SwapsTags),
    planted("tag-sanitized", "tags.unchanged", sink=SanitizesTags),
    planted("tag-case-folded", "tags.unchanged", sink=FoldsTags),
    planted("tag-cut", "tags.unchanged", sink=CutsTags),
    planted("mutates-input", "points.unchanged", sink=MutatesInput),
    planted("caches-by-address", "points.not-aliased", sink=CachesByAddress),
)
"""Points that are lost, doubled, invented, moved, renamed or changed in the caller's hands."""
