"""The exact control: our JSONL sink and its reader. Every cell must be lossless, or the table is void (FID-7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchlens_conformance.protocol import Point

from ..received import Received, Refused, from_result
from .base import Route, emit_each

_WORDS = frozenset({"scalar", "raw_histogram", "text_manifest", "graph"})


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Write the points to one JSONL file."""
    from reference_sinks import JSONLSink

    sink = JSONLSink(place / "points.jsonl")
    refused = emit_each(sink, points, _WORDS)
    sink.close()
    return refused


def read(place: Path) -> Received:
    """Read the JSONL file back."""
    from reference_sinks.readers import read_jsonl

    result = read_jsonl(place / "points.jsonl")
    return from_result(result)


ROUTE = Route("jsonl", "JSONL (exact control)", None, send, read, _WORDS)
