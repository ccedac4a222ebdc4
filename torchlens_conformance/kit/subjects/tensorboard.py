"""TensorBoardSink as a subject: event files, with the limits of the format (TB-1)."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ..subject import Subject
from .readers import read_tensorboard_place

with suppress(ImportError):
    # Once here, and not again in every process that opens a sink; a missing package is refused when one is opened.
    import_module("torch.utils.tensorboard")


def open_tensorboard(place: Path) -> Any:
    """Open a TensorBoardSink on ``place``, with its default forms."""
    from reference_sinks import TensorBoardSink

    return TensorBoardSink(place)


TENSORBOARD = Subject(
    name="TensorBoardSink",
    open=open_tensorboard,
    read=read_tensorboard_place,
    distribution="torchlens-conformance",
    undeclared={
        "embedding_module": "TensorBoard's projector is a folder of files of its own, not an event",
        "run_metadata": "an event file has no place for facts about the run but text",
        "structured_event": "an event file has no place for a payload but text",
    },
    deviations=Path(__file__).with_name("tensorboard.toml"),
)
"""TensorBoard's event files through torch's writer."""
