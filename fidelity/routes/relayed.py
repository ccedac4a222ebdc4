"""What relays of TensorBoard writers have in common: who is started first, and who is closed last (FID-8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torchlens_conformance.protocol import Point

from ..received import Refused
from .base import emit_each
from .tensorboard import WORDS

OpenedSink: TypeAlias = tuple[Any, Callable[[], object]]
"""A sink over a writer, and what closes both."""


def send_relayed(
    points: Sequence[Point],
    open_sink: Callable[[], OpenedSink],
    start: Callable[[], Any],
    finish: Callable[[Any], object],
    *,
    writer_first: bool,
    words: frozenset[str] = WORDS,
) -> list[Refused]:
    """Emit points into a writer that a tracker listens to.

    Args:
        points: What is sent.
        open_sink: Constructs the writer and a sink over it.
        start: Starts the tracker, and returns its run.
        finish: Ends the run.
        writer_first: Whether the writer is constructed before the tracker is started.
        words: Capabilities whose points are sent.
    """
    opened = open_sink() if writer_first else None
    run = start()
    sink, close = opened or open_sink()
    refused = emit_each(sink, points, words)
    close()
    finish(run)
    return refused
