"""TensorBoard's own path: torch's SummaryWriter, read back from the event file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchlens_conformance.protocol import Point

from ..received import Received, Refused, from_result
from .base import Route, emit_each
from .resuming import Resume, Way

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest", "graph"})
"""What the TensorBoard sink carries of the stimulus."""


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Write the points through a SummaryWriter of our own sink."""
    from reference_sinks import TensorBoardSink

    from .wire import sink_settings

    sink = TensorBoardSink(place / "log", **sink_settings())
    refused = emit_each(sink, points, WORDS)
    sink.close()
    return refused


def read(place: Path) -> Received:
    """Read every event of the event file."""
    from reference_sinks.readers import read_tensorboard

    result = read_tensorboard(place / "log")
    return from_result(result)


_RESUME = Resume(send, (Way("a second SummaryWriter(log_dir) on the same folder", send),), read)

ROUTE = Route("tensorboard", "TensorBoard", "tensorboard", send, read, WORDS, chart="thirty bins", resume=_RESUME)
