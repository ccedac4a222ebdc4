"""Subjects that are right, and must be found right by every run of the kit (JSONL-1, MEM-1)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reference_sinks import JSONLSink
from reference_sinks.readers import ReadResult, read_jsonl
from torchlens_conformance.protocol import Point

from .defects.base import PlainSink, encode_line, read_plain
from .subject import Subject

_JSONL_NAME = "points.jsonl"


@dataclass(frozen=True, slots=True)
class Perfect:
    """A subject without a fault.

    Args:
        id: Stable, in words joined by hyphens.
        subject: The subject.
        excused: The ids of the checks that a sink of this design fails: those and no others.
    """

    id: str
    subject: Subject
    excused: tuple[str, ...] = ()


def open_jsonl(place: Path) -> JSONLSink:
    """Open a JSONLSink on a file in ``place``."""
    return JSONLSink(Path(place) / _JSONL_NAME)


def read_jsonl_place(place: Path) -> ReadResult:
    """Read the file that :func:`open_jsonl` writes."""
    return read_jsonl(Path(place) / _JSONL_NAME)


class MemoryUntilClose(PlainSink):
    """Keep the lines in memory and write them all to the place at close.

    It loses what a killed process held, and its memory grows: see ``excused`` of :data:`PERFECT`.
    """

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._lines: list[bytes] = []

    def emit(self, point: Point) -> None:
        """Keep one point, as the text it is then."""
        self.require_usable()
        with self._lock:
            self.require_usable()
            self._lines.append(encode_line(point))

    def sync(self) -> None:
        """Write everything when the sink is being closed; before that there is nothing to do."""
        if self._closed:
            self.append(b"".join(self._lines))
            os.fsync(self._file)


PERFECT: tuple[Perfect, ...] = (
    Perfect("jsonl", Subject(name="jsonl", open=open_jsonl, read=read_jsonl_place)),
    Perfect("plain", Subject(name="plain", open=PlainSink, read=read_plain)),
    Perfect(
        "memory-until-close",
        Subject(name="memory-until-close", open=MemoryUntilClose, read=read_plain),
        excused=("survives.kill-between", "survives.kill-inside", "scale.memory"),
    ),
)
"""Every perfect subject; the plain one is what the planted defects are made from."""
