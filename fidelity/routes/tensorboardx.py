"""tensorboardX's own path: its SummaryWriter, read back from the event file. An extra route, not in the default run.

It has messages of its own: an event of tensorboard's, which is what our sink makes of a graph, ends its writing thread,
and then its close waits for ever (measured with 2.6.5). So no graph is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchlens_conformance.protocol import Point

from ..received import Refused
from .base import Route, emit_each
from .relayed import OpenedSink
from .resuming import Resume, Way
from .tensorboard import read

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What our TensorBoard sink carries over a writer of tensorboardX."""


def open_tensorboardx(log: Path) -> OpenedSink:
    """Return a TensorBoardSink over a writer of tensorboardX, and what closes both; the writer writes into ``log``."""
    from tensorboardX import SummaryWriter

    from reference_sinks import TensorBoardSink

    from .wire import sink_settings

    writer = SummaryWriter(str(log))
    sink = TensorBoardSink(writer, **sink_settings())

    def close() -> None:
        sink.close()
        writer.close()

    return sink, close


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Write the points through tensorboardX."""
    sink, close = open_tensorboardx(place / "log")
    refused = emit_each(sink, points, WORDS)
    close()
    return refused


_RESUME = Resume(send, (Way("a second SummaryWriter(logdir) on the same folder", send),), read)

ROUTE = Route("tensorboardx", "tensorboardX", "tensorboardX", send, read, WORDS, chart="thirty bins", resume=_RESUME)
