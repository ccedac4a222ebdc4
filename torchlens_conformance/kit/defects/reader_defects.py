"""Defects of readers and of whole subjects: answers that do not come from the store, and none at all (PROT-10)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from reference_sinks.readers.result import ReadResult
from torchlens_conformance.protocol import ImagePoint, Point, ScalarPoint

from .base import Defect, PlainSink, encode_line, planted

_told: dict[str, list[Point]] = {}


class RemembersInMemory(PlainSink):
    """The reader gives back what it was told in memory; nothing is stored."""

    def emit(self, point: Point) -> None:
        """Remember the very point."""
        self.require_usable()
        encode_line(point)
        _told.setdefault(str(self.path.parent), []).append(point)


def read_memory(place: Path) -> ReadResult:
    """Return what the sink in this process was told."""
    return ReadResult(points=tuple(_told.get(str(place), ())), reader="memory")


def read_canned(place: Path) -> ReadResult:
    """The reader gives the same answer for every place."""
    return ReadResult(points=tuple(ScalarPoint("loss", step, 1.0 / (1 + step)) for step in range(3)), reader="canned")


def read_nothing(place: Path) -> ReadResult:
    """The reader finds nothing, whatever is stored."""
    return ReadResult(points=(), reader="nothing")


def read_raising(place: Path) -> ReadResult:
    """The reader raises."""
    raise KeyError("points")


class FlushHangs(PlainSink):
    """A second flush does not come back."""

    _flushed = False

    def flush(self) -> None:
        """Flush once, then wait for an hour."""
        if self._flushed:
            time.sleep(3600)
        self._flushed = True
        super().flush()


class Exits(PlainSink):
    """The process ends in the middle of an image."""

    def emit_image(self, point: ImagePoint) -> None:
        """Leave without a word."""
        os._exit(0)


class CannotOpen(PlainSink):
    """The sink cannot be opened."""

    def __init__(self, place: Path) -> None:
        raise ImportError("No module named 'tracker'")


READER_DEFECTS: tuple[Defect, ...] = (
    planted("same-object", "reader.fresh", sink=RemembersInMemory, read=read_memory),
    planted("canned-answer", "reader.sees-changes", read=read_canned),
    planted("reads-nothing", "reader.sees-changes", read=read_nothing),
    planted("reader-raises", "reader.fresh", read=read_raising),
    planted("flush-hangs", "teardown.flush-before-close", sink=FlushHangs),
    planted("exits", "values.image", sink=Exits),
    planted("cannot-open", "surface.words", sink=CannotOpen),
)
"""Subjects whose answers do not come from the store, or do not come."""
