"""JSONLSink as a subject: no deviations (JSONL-1..4)."""

from __future__ import annotations

from pathlib import Path

from reference_sinks import JSONLSink
from reference_sinks.readers import ReadResult, read_jsonl

from ..subject import Subject

_FILE = "run.jsonl"


def open_jsonl(place: Path) -> JSONLSink:
    """Open a JSONLSink on a file in ``place``."""
    return JSONLSink(Path(place) / _FILE)


def read_jsonl_place(place: Path) -> ReadResult:
    """Read the file that :func:`open_jsonl` wrote."""
    return read_jsonl(Path(place) / _FILE)


JSONL = Subject(name="JSONLSink", open=open_jsonl, read=read_jsonl_place, distribution="torchlens-conformance")
"""The sink without a tracker: everything is kept."""
