"""ClearMLSink: scalars as series of a live ClearML task, histograms and texts as its artifacts (CLEARML-1)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Refusal, RelayState, ScalarPoint, TextPoint

from .clearml_artifacts import PointArtifacts
from .clearml_names import title_and_series
from .clearml_session_log import SessionLog
from .encodable import require_encodable_tag
from .packages import require_package
from .sink_state import SinkState

LOOK_EVERY = 1000
"""Scalars after which the session's file is looked at without a wait, so that what waits to be seen stays little."""

MOST_WAITING = 100_000
"""Scalars that may wait to be seen in the session's file; then the sink flushes by itself."""


class ClearMLSink:
    """Write points to a live ClearML task.

    The sink neither starts nor closes tasks. What the task holds afterwards:

    - Scalars are series: the tag up to its last slash is the title, the rest the series, the step is the iteration.
      Every finite float is exact. NaN and the infinities would become 0.0, an int that no float holds would be rounded;
      both refuse ``tracker_value_unsupported``.
    - Histograms and texts of a step are one artifact, a file in the format of
      :class:`~reference_sinks.jsonl_sink.JSONLSink`: counts, edges, summary and text are exact. They are not drawn;
      the artifact's preview names them. What is emitted waits in memory until the step changes, or for a flush.

    A continued task adds its last iteration plus one to every iteration that is reported, without a word. The sink
    takes the caller's steps only, so a task with ``get_initial_iteration()`` other than 0 refuses
    ``tracker_step_shifted``, when the sink is made and at every emit.

    ClearML's reporter writes in the background and dies of the first write that fails; ``flush`` then returns as ever.
    With an offline session the sink looks into the session's files, and refuses by name what is not there. With a
    server it can only hand over: a flush waits until ClearML's queue is empty, and nothing tells what arrived.

    Args:
        task: What ``clearml.Task.init`` returned.

    Raises ``tracker_sink_unavailable``, ``tracker_sink_settings_invalid`` (no task), ``tracker_sink_closed`` (a closed
    task: ClearML takes everything and keeps nothing) and ``tracker_step_shifted``. Every ``emit_*`` raises
    ``tracker_sink_closed``, ``tracker_sink_forked``, ``tracker_step_shifted``, ``tracker_value_unsupported``,
    ``tracker_tag_unsafe`` and ``tracker_sink_write_failed``; once that was raised nothing more is taken.

    Clause: CLEARML-1, PROT-1, PROT-6, PROT-10, PROT-11, POINT-3.
    """

    def __init__(self, task: Any) -> None:
        library = require_package("clearml", extra="clearml")
        self._state = SinkState(type(self).__name__)
        if not isinstance(task, library.Task):
            raise Refusal(
                "tracker_sink_settings_invalid",
                "The object is no ClearML task.",
                remedy="Pass what clearml.Task.init returned.",
                setting="task",
                value=type(task).__name__,
            )
        self._task = task
        self._require_live()
        self._require_own_steps()
        folder = task.get_offline_mode_folder()
        self._folder = None if folder is None else Path(str(folder))
        self._logger = task.get_logger()
        # Where this word of ClearML's is gone, the longer wait is the safe one.
        own_process = bool(getattr(task, "_report_subprocess_enabled", True))
        self._log = None if self._folder is None else SessionLog(self._folder, own_process=own_process)
        self._artifacts = PointArtifacts(task, self._folder)
        self._lock = threading.Lock()
        self._failure: Refusal | None = None
        self._taken = self._settled = 0

    def capabilities(self) -> frozenset[str]:
        """Return what the sink carries: scalars, raw histograms and texts. Clause: PROT-2."""
        return frozenset({"scalar", "raw_histogram", "text_manifest"})

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Report one number; one that ClearML would change is refused. Clause: CLEARML-1, POINT-3."""
        self._require_usable()
        value = _storable(point)
        _require_storable_tag(point.tag)
        title, series = title_and_series(point.tag)
        with self._lock:
            if self._log is not None:
                self._log.expect((title, series, point.step, value))
            self._logger.report_scalar(title, series, value, point.step)
            self._taken += 1
            if self._log is not None and self._taken % LOOK_EVERY == 0:
                self._keep_up(self._log)

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Add one histogram to the artifact of its step. Clause: CLEARML-1."""
        self._add(point)

    def emit_text(self, point: TextPoint) -> None:
        """Add one text to the artifact of its step. Clause: CLEARML-1."""
        self._add(point)

    def flush(self) -> None:
        """Upload what waits and block until ClearML's queue is empty; offline, until everything is on disk.

        Takes milliseconds while the reporter is a thread (``report_use_subprocess: false``) and five seconds where it
        is a process, ClearML's default (measured with 2.1.12). Raises ``tracker_sink_write_failed``. Clause: PROT-6,
        PROT-10.
        """
        self._require_usable()
        with self._lock:
            self._settle()

    def close(self) -> None:
        """Flush and take nothing more; the task stays open. Again, or in a forked child, it does nothing.

        Raises ``tracker_sink_write_failed`` like :meth:`flush`, and ``tracker_sink_closed`` when histograms or texts
        still waited and the task is closed already; the sink is closed all the same. Clause: PROT-6.
        """
        if not self._state.close():
            return
        with self._lock:
            self._raise_failure()
            if self._artifacts.waiting:
                self._require_live()
            self._settle()

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Refuse ``tracker_tag_unsafe`` for tags that have no UTF-8 form. Clause: PROT-7."""
        for tag in tags:
            _require_storable_tag(tag)

    def relay_state(self) -> RelayState:
        """Return ``emitted`` once something was handed over. Clause: PROT-8."""
        evidence = f"{self._taken} points were handed to the task"
        if self._folder is None:
            evidence += "; what the server took is not in sight"
        else:
            evidence += f", {self._settled} of them were seen in the files of the offline session"
        return RelayState("emitted" if self._taken else "computed", evidence)

    def last_step(self) -> int | None:
        """Return the largest step that the task holds, or None; offline by reading the session. Clause: PROT-11."""
        if self._state.forked:
            return None
        if self._folder is None:
            # ClearML says 0 for none as well.
            return int(self._task.get_last_iteration()) or None
        from .readers import read_clearml

        steps = [getattr(point, "step", -1) for point in read_clearml(self._folder, allow_torn=True)]
        return max(steps, default=None)

    def _add(self, point: HistogramPoint | TextPoint) -> None:
        self._require_usable()
        _require_storable_tag(point.tag)
        with self._lock, self._latching():
            self._artifacts.add(point)
            self._taken += 1

    def _settle(self) -> None:
        with self._latching():
            self._artifacts.upload()
            self._task.flush(wait_for_uploads=True)
            if self._log is not None:
                self._log.require_written()
        self._settled = self._taken

    def _keep_up(self, log: SessionLog) -> None:
        log.look()
        if log.waiting >= MOST_WAITING:
            self._settle()

    @contextmanager
    def _latching(self) -> Iterator[None]:
        """Remember the first failure that comes through, so that the sink takes nothing more."""
        try:
            yield
        except Refusal as refusal:
            if refusal.code == "tracker_sink_write_failed":
                self._failure = refusal
            raise

    def _require_usable(self) -> None:
        self._state.require_usable()
        self._raise_failure()
        self._require_live()
        self._require_own_steps()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _require_live(self) -> None:
        # The flag is set while the task closes; ClearML has no public word for it in an offline session.
        if getattr(self._task, "_at_exit_called", False):
            raise Refusal(
                "tracker_sink_closed",
                "The ClearML task is closed, and takes what it is given without keeping it.",
                remedy="Close the sink before task.close(), and make a new one for a new task.",
                sink=self._state.name,
            )

    def _require_own_steps(self) -> None:
        offset = self._task.get_initial_iteration()
        if offset:
            raise Refusal(
                "tracker_step_shifted",
                f"The task is continued, and ClearML adds {offset} to every step.",
                remedy="Call task.set_initial_iteration(0), or start it with continue_last_task=0.",
                offset=offset,
            )


def _storable(point: ScalarPoint) -> float:
    value = point.value
    try:
        # ClearML makes a float of what it is given.
        stored = float(value)
    except OverflowError:
        stored = float("inf")
    if isfinite(stored) and stored == value:
        return stored
    why = "makes 0.0 of NaN and of both infinities" if value - value != 0 else "makes a float of every number"
    raise Refusal(
        "tracker_value_unsupported",
        f"ClearML {why}, without a word.",
        remedy="Log it as text, or use a sink that keeps such numbers, JSONLSink for example.",
        tag=point.tag,
        value=_shown(value),
    )


def _shown(value: float) -> str:
    try:
        return str(value)[:80]
    except ValueError:  # more digits than Python shows
        return "an int of more than 4300 digits"


def _require_storable_tag(tag: str) -> None:
    # An offline session would keep lone surrogates, but it is there to be imported to a server.
    require_encodable_tag(tag, store="ClearML")
