"""Subjects that are right, and must be found right by every run of the kit (JSONL-1, MEM-1)."""

from __future__ import annotations

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


class MemoryUntilFlush(PlainSink):
    """Keep the lines in memory and write them to the place at flush and at close.

    A buffer is no fault: what counts as acknowledged for good is what a flush returned for (PROT-10).
    """

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._waiting: list[bytes] = []

    def emit(self, point: Point) -> None:
        """Keep one point, as the text it is then."""
        self.require_usable()
        with self._lock:
            self.require_usable()
            self._waiting.append(encode_line(point))

    def sync(self) -> None:
        """Write what waits; what does not go whole is refused and waits on."""
        self.append(b"".join(self._waiting))
        self._waiting.clear()
        super().sync()


PERFECT: tuple[Perfect, ...] = (
    Perfect("jsonl", Subject(name="jsonl", open=open_jsonl, read=read_jsonl_place)),
    Perfect("plain", Subject(name="plain", open=PlainSink, read=read_plain)),
    Perfect("memory", Subject(name="memory", open=MemoryUntilFlush, read=read_plain)),
)
"""Every perfect subject; the plain one is what the planted defects are made from."""
