"""tensorboardX under ClearML's TensorBoard relay, which patches its writer apart from torch's. An extra route."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torchlens_conformance.protocol import Point

from ..received import Refused
from .base import Route
from .clearml import environment
from .clearml_relay import read, send_to_task, stored_tag
from .tensorboardx import WORDS, open_tensorboardx


def _send(points: Sequence[Point], place: Path, *, writer_first: bool) -> list[Refused]:
    """Write the points through tensorboardX while ClearML listens."""
    return send_to_task(points, lambda: open_tensorboardx(place / "log"), writer_first=writer_first, words=WORDS)


ROUTE = Route(
    "tensorboardx-clearml",
    "ClearML relay, tensorboardX",
    "clearml",
    partial(_send, writer_first=False),
    read,
    WORDS,
    partial(_send, writer_first=True),
    environment,
    stored_tag,
    chart="surface",
)
