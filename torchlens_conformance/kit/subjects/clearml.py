"""ClearMLSink as a subject: an offline session, with the limits of ClearML (CLEARML-1)."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from reference_sinks.clearml_offline import CONFIG_FILE, offline_environment, start_offline_task

from ...protocol import Refusal
from ..subject import Subject
from .readers import read_clearml_place

with suppress(ImportError):
    # Once here, and not again in every process that opens a sink; a missing package is refused when one is opened.
    # The settings are read at this import.
    os.environ.update({"CLEARML_CONFIG_FILE": str(CONFIG_FILE), "CLEARML_OFFLINE_MODE": "1"})
    import_module("clearml")

_MASTERS = ("CLEARML_PROC_MASTER_ID", "TRAINS_PROC_MASTER_ID")
# Set by a process with a task, and inherited by those it starts: their Task.init would join the parent's task.


class TaskOwner:
    """A ClearMLSink together with the offline task that it reports to: the last close closes the task as well.

    ClearMLSink itself neither starts nor closes tasks, so a certificate of it needs a caller that does. ClearML has
    one task a process, so that a second sink on the same place shares the task, and one on another place is refused.
    Everything but ``close`` is the sink's own.
    """

    _holders = 0
    _place: Path | None = None
    _task: Any = None

    def __init__(self, place: Path) -> None:
        from reference_sinks import ClearMLSink

        self._owner = os.getpid()
        self._held = False
        self._start(Path(place))
        self._sink = ClearMLSink(TaskOwner._task)
        self._held = True
        TaskOwner._holders += 1

    @staticmethod
    def _start(place: Path) -> None:
        """Start a task in ``place``, unless this process has one there."""
        if TaskOwner._holders and place == TaskOwner._place:
            return
        if TaskOwner._holders:
            raise Refusal(
                "tracker_sink_settings_invalid",
                "ClearML has one task a process, and it lies elsewhere.",
                remedy="Close the other task first, or use a process of its own.",
                setting="task",
                value=str(TaskOwner._place),
            )
        if not os.access(place, os.W_OK):
            raise Refusal(
                "tracker_sink_write_failed",
                "The folder of the session cannot be written.",
                remedy="Name one that can be written by CLEARML_CACHE_DIR.",
                path=str(place),
            )
        os.environ.update(offline_environment(place))
        for name in _MASTERS:
            if not os.environ.get(name, "").startswith(f"{os.getpid()}:"):
                os.environ.pop(name, None)
        with warnings.catch_warnings():
            # Where warnings are errors ClearML would lose its own settings over one that its parser gives.
            warnings.simplefilter("ignore")
            TaskOwner._task, TaskOwner._place = start_offline_task("certified"), place

    def __getattr__(self, name: str) -> Any:
        if name == "_sink":
            raise AttributeError(name)
        return getattr(self._sink, name)

    def close(self) -> None:
        """Close the sink, and the task with the last sink on it; a forked child closes the sink alone."""
        try:
            self._sink.close()
        finally:
            if self._held and os.getpid() == self._owner:
                self._held = False
                TaskOwner._holders -= 1
                if not TaskOwner._holders:
                    TaskOwner._task.close()


def open_clearml(place: Path) -> TaskOwner:
    """Start an offline task in ``place``, or take the one that this process has there, and open a ClearMLSink on it."""
    return TaskOwner(place)


CLEARML = Subject(
    name="ClearMLSink",
    open=open_clearml,
    read=read_clearml_place,
    distribution="torchlens-conformance",
    undeclared={
        "embedding_module": "ClearML has no place for vectors but an artifact, which a caller can upload as well",
        "graph": "ClearML draws no graphs",
        "image": "ClearML keeps images as files beside the events, by default the last five a series",
        "run_metadata": "facts about the run belong into the task's configuration, which the caller owns",
        "structured_event": "a series of a task has no place for a payload",
    },
    deviations=Path(__file__).with_name("clearml.toml"),
)
"""A ClearML task in offline mode."""
