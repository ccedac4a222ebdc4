"""tensorboardX under wandb's TensorBoard relay, which patches its writer apart from torch's. An extra route."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point

from ..received import Refused
from .base import Route
from .relayed import send_relayed
from .tensorboardx import WORDS, open_tensorboardx
from .wandb import environment, finish_run, read, start_run


def _send(points: Sequence[Point], place: Path, *, writer_first: bool) -> list[Refused]:
    """Write the points through tensorboardX while wandb listens."""
    log = place / "log"

    def start() -> Any:
        from wandb.integration import tensorboard as relay

        # Naming the folder spares wandb its search for one, and ten seconds of waiting at the end.
        relay.patch(root_logdir=str(log))
        return start_run(place)

    return send_relayed(
        points,
        open_sink=lambda: open_tensorboardx(log),
        start=start,
        finish=lambda run: finish_run(run, place),
        writer_first=writer_first,
        words=WORDS,
    )


ROUTE = Route(
    "tensorboardx-wandb",
    "wandb relay, tensorboardX",
    "wandb",
    partial(_send, writer_first=False),
    read,
    WORDS,
    send_writer_first=partial(_send, writer_first=True),
    environment=environment,
    chart="bars",
)
