"""wandb's TensorBoard relay (``sync_tensorboard``): a SummaryWriter whose event file wandb reads along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchlens_conformance.protocol import Point

from ..received import Refused
from .base import Route, emit_each
from .tensorboard import WORDS
from .wandb import environment, finish_run, read, start_run


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Start the relay, then construct the writer, then write."""
    return _send(points, place, writer_first=False)


def send_writer_first(points: Sequence[Point], place: Path) -> list[Refused]:
    """Construct the writer, then start the relay, then write."""
    return _send(points, place, writer_first=True)


def _send(points: Sequence[Point], place: Path, *, writer_first: bool) -> list[Refused]:
    from wandb.integration import tensorboard as relay

    from reference_sinks import TensorBoardSink

    from .wire import sink_settings

    log = place / "log"
    sink = TensorBoardSink(log, **sink_settings()) if writer_first else None
    # Naming the folder spares wandb its search for one, and ten seconds of waiting at the end.
    relay.patch(root_logdir=str(log))
    run = start_run(place)
    sink = sink or TensorBoardSink(log, **sink_settings())
    refused = emit_each(sink, points, WORDS)
    sink.close()
    finish_run(run, place)
    return refused


ROUTE = Route("wandb-relay", "wandb relay", "wandb", send, read, WORDS, send_writer_first, environment)
