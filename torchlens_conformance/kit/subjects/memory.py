"""MemorySink as a subject: it has no store, so it is read where it was written, and capped (MEM-1)."""

from __future__ import annotations

from pathlib import Path

from reference_sinks import MemorySink

from ...protocol import Point
from ..subject import Subject

_SINKS: dict[str, list[MemorySink]] = {}


def open_memory(place: Path) -> MemorySink:
    """Make a MemorySink and remember it under ``place``."""
    sink = MemorySink()
    _SINKS.setdefault(str(place), []).append(sink)
    return sink


def read_memory(place: Path) -> tuple[Point, ...]:
    """Return what the sinks of ``place`` in this process hold, in the order they were made."""
    return tuple(point for sink in _SINKS.get(str(place), ()) for point in sink.points)


MEMORY = Subject(
    name="MemorySink",
    open=open_memory,
    read=read_memory,
    distribution="torchlens-conformance",
    deviations=Path(__file__).with_name("memory.toml"),
    in_process_read=True,
)
"""The sink for tests and notebooks; its verdict is with-deviations at best."""
