"""WandbSink as a subject: an offline run's history, with the limits of wandb (WANDB-1)."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from reference_sinks.readers import ReadResult, read_wandb

from ..subject import Subject

with suppress(ImportError):
    # Once here, and not again in every process that opens a sink; a missing package is refused when one is opened.
    import_module("wandb")

_QUIET = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_ERROR_REPORTING": "false"}


class RunOwner:
    """A WandbSink together with the offline run that it logs to: close finishes the run as well.

    WandbSink itself neither starts nor finishes runs, so a certificate of it needs a caller that does. Everything but
    ``close`` is the sink's own.
    """

    def __init__(self, place: Path) -> None:
        os.environ.update(_QUIET)
        import wandb

        from reference_sinks import WandbSink

        settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off")
        self._run = wandb.init(
            mode="offline", dir=str(place), project="conformance", settings=settings, reinit="create_new"
        )
        self._owner = os.getpid()
        self._sink = WandbSink(self._run)

    def __getattr__(self, name: str) -> Any:
        if name == "_sink":
            raise AttributeError(name)
        return getattr(self._sink, name)

    def close(self) -> None:
        """Close the sink, then finish the run; in a forked child only the sink's own close is called."""
        self._sink.close()
        if os.getpid() == self._owner:
            self._run.finish()


def open_wandb(place: Path) -> RunOwner:
    """Start an offline run in ``place`` and open a WandbSink on it."""
    return RunOwner(place)


def read_wandb_place(place: Path) -> ReadResult:
    """Read every offline run of ``place``, oldest first; a torn tail is named and not refused.

    Raises what ``read_wandb`` raises, also for a place without a run.
    """
    runs = sorted(Path(place).glob("wandb/offline-run-*/*.wandb"), key=lambda file: (file.stat().st_mtime_ns, file))
    if len(runs) < 2:
        return read_wandb(place, allow_torn=True)
    results = [read_wandb(run, allow_torn=True) for run in runs]
    return replace(
        results[-1],
        points=tuple(point for result in results for point in result.points),
        unplaced=tuple(item for result in results for item in result.unplaced),
        torn="; ".join(result.torn for result in results if result.torn) or None,
        notes=tuple(note for result in results for note in result.notes),
    )


WANDB = Subject(
    name="WandbSink",
    open=open_wandb,
    read=read_wandb_place,
    distribution="torchlens-conformance",
    undeclared={
        "embedding_module": "wandb has tables, which keep no raw vectors of a given type",
        "graph": "wandb draws graphs of its own watcher only",
        "image": "wandb keeps images as files beside the history; the sink does not write them",
        "run_metadata": "facts about the run belong into the run's config, which the caller owns",
        "structured_event": "a row of the history has no place for a payload",
    },
    deviations=Path(__file__).with_name("wandb.toml"),
)
"""wandb's offline history through a live run."""
