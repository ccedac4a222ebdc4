"""The exact control: our JSONL sink and its reader. Every cell must be lossless, or the table is void (FID-7)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torchlens_conformance.protocol import Point

from ..received import Received, Refused, from_result
from .base import Route, emit_each
from .resuming import Resume, Way

_WORDS = frozenset({"scalar", "raw_histogram", "text_manifest", "graph"})


def send(points: Sequence[Point], place: Path, *, resume: bool = False) -> list[Refused]:
    """Write the points to one JSONL file, a new one or behind what it holds."""
    from reference_sinks import JSONLSink

    sink = JSONLSink(place / "points.jsonl", resume=resume)
    refused = emit_each(sink, points, _WORDS)
    sink.close()
    return refused


def read(place: Path) -> Received:
    """Read the JSONL file back."""
    from reference_sinks.readers import read_jsonl

    result = read_jsonl(place / "points.jsonl")
    return from_result(result)


_RESUME = Resume(send, (Way("JSONLSink(path, resume=True)", partial(send, resume=True)),), read)

ROUTE = Route("jsonl", "JSONL (exact control)", None, send, read, _WORDS, resume=_RESUME)
