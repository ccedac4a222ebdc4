"""WandbSink as a subject: an offline run's history, with the limits of wandb (WANDB-1)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from reference_sinks.readers.wandb import wandb_run_has_ended

from ...protocol import Refusal
from ..subject import Subject
from .readers import read_wandb_place

with suppress(ImportError):
    # Once here, and not again in every process that opens a sink; a missing package is refused when one is opened.
    import_module("wandb")

_PATIENCE = 60.0
# Seconds for the end of a run's file; it takes milliseconds.

_QUIET = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_ERROR_REPORTING": "false"}


class RunOwner:
    """A WandbSink together with the offline run that it logs to: close finishes the run as well.

    WandbSink itself neither starts nor finishes runs, so a certificate of it needs a caller that does. Everything but
    ``close`` is the sink's own.
    """

    def __init__(self, place: Path) -> None:
        _require_writable(place)
        os.environ.update(_QUIET)
        import wandb

        from reference_sinks import WandbSink

        settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off")
        with _temporary_files_in(place):
            self._run = wandb.init(
                mode="offline", dir=str(place), project="conformance", settings=settings, reinit="create_new"
            )
        self._owner = os.getpid()
        self._finished = False
        self._sink = WandbSink(self._run)

    def __getattr__(self, name: str) -> Any:
        if name == "_sink":
            raise AttributeError(name)
        return getattr(self._sink, name)

    def close(self) -> None:
        """Close the sink, finish the run, and wait until its file is whole; a forked child closes the sink alone.

        Raises ``tracker_sink_write_failed`` when wandb does not write the end of the file in time.
        """
        try:
            self._sink.close()
        finally:
            folder = self._finish()
        if folder is not None:
            _wait_for_the_end(folder)

    def _finish(self) -> Path | None:
        """Finish the run if that is still to be done, and return its folder."""
        if os.getpid() != self._owner or self._finished:
            return None
        self._finished = True
        folder = Path(self._run.dir).parent
        self._run.finish()
        return folder


def _require_writable(place: Path) -> None:
    """Refuse what wandb would pass over: it then writes to the system's folder for temporary files, with a warning."""
    if not os.access(place, os.R_OK | os.W_OK):
        raise Refusal(
            "tracker_sink_write_failed",
            "The folder of the run cannot be written, and wandb would write into another one.",
            remedy="Give wandb.init(dir=...) a folder that can be written.",
            path=str(place),
        )


@contextmanager
def _temporary_files_in(place: Path) -> Iterator[None]:
    """Let wandb's service, which is started here, keep its sockets in ``place``: what is killed leaves them behind."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(place)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def _wait_for_the_end(folder: Path) -> None:
    """Wait until a run's file ends with its exit record: ``finish`` may return before that."""
    deadline = time.monotonic() + _PATIENCE
    pause = 0.001
    while not wandb_run_has_ended(folder):
        if time.monotonic() > deadline:
            raise Refusal(
                "tracker_sink_write_failed",
                f"wandb did not write the end of the run's file within {_PATIENCE:g} seconds.",
                remedy="Look into the log of wandb's service, beside the run's file.",
                path=str(folder),
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def open_wandb(place: Path) -> RunOwner:
    """Start an offline run in ``place`` and open a WandbSink on it."""
    return RunOwner(place)


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
