"""wandb's TensorBoard relay (``sync_tensorboard``): a SummaryWriter whose event file wandb reads along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point

from ..received import Refused
from .base import Route
from .relayed import OpenedSink, send_relayed
from .tensorboard import WORDS
from .wandb import environment, finish_run, read, start_run
from .wire import sink_settings


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Start the relay, then construct the writer, then write."""
    return _send(points, place, writer_first=False)


def send_writer_first(points: Sequence[Point], place: Path) -> list[Refused]:
    """Construct the writer, then start the relay, then write."""
    return _send(points, place, writer_first=True)


def _send(points: Sequence[Point], place: Path, *, writer_first: bool) -> list[Refused]:
    from wandb.integration import tensorboard as relay

    from reference_sinks import TensorBoardSink

    log = place / "log"

    def open_sink() -> OpenedSink:
        sink = TensorBoardSink(log, **sink_settings())
        return sink, sink.close

    def start() -> Any:
        # Naming the folder spares wandb its search for one, and ten seconds of waiting at the end.
        relay.patch(root_logdir=str(log))
        return start_run(place)

    return send_relayed(
        points,
        open_sink=open_sink,
        start=start,
        finish=lambda run: finish_run(run, place),
        writer_first=writer_first,
    )


ROUTE = Route("wandb-relay", "wandb relay", "wandb", send, read, WORDS, send_writer_first, environment, chart="bars")
