"""wandb's TensorBoard relay (``sync_tensorboard``): a SummaryWriter whose event file wandb reads along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from torchlens_conformance.protocol import Point

from ..received import Refused
from .base import Route
from .relayed import OpenedSink, send_relayed
from .resuming import Resume, Way
from .tensorboard import WORDS
from .wandb import RESUME_WAY, continue_kept_run, environment, finish_run, read, read_continued, start_kept_run
from .wire import sink_settings

OpenSink: TypeAlias = Callable[[Path], OpenedSink]
"""Makes a writer into a folder, and a sink over it."""


def send_to_run(
    points: Sequence[Point],
    place: Path,
    *,
    open_sink: OpenSink,
    words: frozenset[str],
    start: Callable[[Path], Any] = start_kept_run,
    writer_first: bool = False,
) -> list[Refused]:
    """Write the points through a sink over a writer while wandb listens.

    Args:
        points: What is sent.
        place: Where the log and wandb's folder lie.
        open_sink: Makes the writer and the sink.
        words: Capabilities whose points are sent.
        start: Starts or continues the run.
        writer_first: Whether the writer is constructed before the relay.
    """
    log = place / "log"

    def start_relay() -> Any:
        from wandb.integration import tensorboard as relay

        # Naming the folder spares wandb its search for one, and ten seconds of waiting at the end.
        relay.patch(root_logdir=str(log))
        return start(place)

    finish = partial(finish_run, place=place)
    return send_relayed(points, partial(open_sink, log), start_relay, finish, writer_first=writer_first, words=words)


def wandb_relay_route(route_id: str, title: str, open_sink: OpenSink, words: frozenset[str]) -> Route:
    """Return the route of a writer that wandb's relay follows."""
    send = partial(send_to_run, open_sink=open_sink, words=words)
    writer_first = partial(send, writer_first=True)
    resume = Resume(send, (Way(RESUME_WAY, partial(send, start=continue_kept_run)),), read_continued)
    return Route(route_id, title, "wandb", send, read, words, writer_first, environment, chart="bars", resume=resume)


def _open_sink(log: Path) -> OpenedSink:
    from reference_sinks import TensorBoardSink

    sink = TensorBoardSink(log, **sink_settings())
    return sink, sink.close


ROUTE = wandb_relay_route("wandb-relay", "wandb relay", _open_sink, WORDS)
