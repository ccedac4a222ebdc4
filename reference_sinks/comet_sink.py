"""CometSink: points as metrics and texts of a Comet experiment (COMET-1)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from torchlens_conformance.protocol import Refusal, RelayState, ScalarPoint, TextPoint

from .comet_writer import CometWriter
from .encodable import require_encodable_text
from .packages import require_installed
from .readers.comet_messages import LONGEST_NAME, OWN_METRIC
from .sink_state import SinkState


class CometSink:
    """Write points to a live Comet experiment.

    The sink neither starts nor ends experiments. Of an offline experiment, the sink reads in Comet's message file what
    has arrived there, and refuses once a point does not come, or comes changed; at most 256 points are on
    their way at once. When :meth:`flush` returns, all stand in the file: they survive the death of the process, and a
    second experiment, which ends the first one and throws away what Comet has not written yet.
    ``experiment.flush()`` returns at once and does neither. What the store holds afterwards:

    - Scalars are exact: every float with its sign, NaN and the infinities, integers of any size that Python can print.
      Steps are exact too, in any order, and may repeat.
    - Texts are exact; their tag stands in their metadata.
    - Histograms have no place. Comet's own have one kind of grid, computed by repeated multiplication and with an
      additional edge at zero: of the 514 edges of the default grid 4 are there bit by bit, the others are off by up to
      4.8e-16 of their value (measured with 3.58.8). ``raw_histogram`` is not advertised, so asking for it at attach
      refuses ``tracker_sink_capability_missing``.

    Comet cuts names of metrics at 100 characters; the sink refuses longer ones. ``log_metric(step=)`` also sets the
    step that Comet gives to whatever is logged without one, and a thread that sets it at that very moment moves the
    point; the sink sees that and refuses.

    Args:
        experiment: An ``OfflineExperiment`` or an ``Experiment``, or what ``comet_ml.start`` returned. Of an online
            one ``emit`` hands points to Comet's queue, and :meth:`flush` waits for Comet to deliver them.

    Raises ``tracker_sink_unavailable``, ``tracker_sink_settings_invalid`` (no experiment, a disabled one, or one that
    could not start: Comet logs nothing to them and says so once at most) and ``tracker_sink_closed`` (an ended one).
    Every ``emit_*`` raises ``tracker_sink_closed``, ``tracker_sink_forked``, ``tracker_tag_unsafe``,
    ``tracker_value_unsupported`` and ``tracker_sink_write_failed``, after which everything refuses.

    Clause: COMET-1, PROT-1, PROT-6, PROT-10, PROT-11, POINT-3.
    """

    def __init__(self, experiment: Any) -> None:
        require_installed("comet_ml", extra="comet")
        self._state = SinkState("CometSink")
        _require_experiment(experiment)
        self._experiment = experiment
        self._writer: CometWriter | None = None
        self._require_live()
        self._writer = CometWriter(experiment) if _is_offline(experiment) else None
        self._lock = threading.Lock()
        self._taken = 0

    def capabilities(self) -> frozenset[str]:
        """Return what an experiment carries unchanged: scalars and texts. Clause: PROT-2, COMET-1."""
        return frozenset({"scalar", "text_manifest"})

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Log one metric; an int that Python cannot print, and a name that Comet changes, are refused.

        Clause: COMET-1.
        """
        self._state.require_usable()
        _require_storable_name(point.tag)
        _require_printable(point)
        self._emit(
            point,
            lambda: self._experiment.log_metric(point.tag, point.value, step=point.step, include_context=False),
        )

    def emit_text(self, point: TextPoint) -> None:
        """Log one text; its tag is ``tag`` of its metadata, of any length. Clause: COMET-1."""
        self._state.require_usable()
        require_encodable_text(point.text, tag=point.tag, store="Comet")
        self._emit(point, lambda: self._experiment.log_text(point.text, step=point.step, metadata={"tag": point.tag}))

    def flush(self) -> None:
        """Wait until everything emitted stands in Comet's file; of an online experiment, until Comet has delivered it.

        Raises ``tracker_sink_write_failed`` and ``tracker_sink_closed`` for points that were lost. Clause: PROT-6,
        PROT-10.
        """
        self._state.require_usable()
        if self._writer is not None:
            with self._lock:
                self._writer.settle()
        elif self._experiment.alive and not self._experiment.flush():
            raise Refusal(
                "tracker_sink_write_failed",
                "Comet could not deliver everything that was emitted.",
                remedy="Look into Comet's log, and see whether its server can be reached.",
                sink=self._state.name,
            )

    def close(self) -> None:
        """Take nothing more, after a look that everything was written; the experiment goes on.

        Raises what :meth:`flush` raises for an offline experiment, and is closed all the same. Again, or in a forked
        child, it does nothing. Clause: PROT-6.
        """
        if self._state.close() and self._writer is not None:
            with self._lock:
                try:
                    self._writer.settle()
                finally:
                    self._writer.close()

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Refuse ``tracker_tag_unsafe`` for names that Comet cuts, or uses itself. Clause: PROT-7, POINT-3."""
        for tag in tags:
            _require_storable_name(tag)

    def relay_state(self) -> RelayState:
        """Return ``emitted`` once something was logged: the archive is made at the experiment's end. Clause: PROT-8."""
        if not self._taken:
            return RelayState("computed", "nothing was handed to the experiment")
        if self._writer is None:
            evidence = (
                f"{self._taken} points were handed to the experiment; Comet delivers them by the time it has ended"
            )
        else:
            evidence = (
                f"{self._taken - self._writer.unseen} of {self._taken} points stand in the message file of the "
                "experiment; experiment.end() packs the archive, and `comet upload` sends it"
            )
        return RelayState("emitted", evidence)

    def _emit(self, point: ScalarPoint | TextPoint, log: Callable[[], object]) -> None:
        with self._lock:
            # Again, under the lock: another thread may have closed the sink.
            self._state.require_usable()
            self._require_live()
            if self._writer is None:
                log()
            else:
                self._writer.write(point, log)
            self._taken += 1

    def _require_live(self) -> None:
        if self._writer is not None:
            self._writer.require_written()
        if self._experiment.alive:
            return
        if self._writer is not None:
            # What was lost is told first.
            self._writer.settle()
        if not self._experiment.ended:
            message = "The experiment could not start; Comet drops everything that is logged to it."
            raise _settings_refusal(message, "Look into Comet's log, or use comet_ml.OfflineExperiment.", "not alive")
        replaced = _live_experiment() not in (None, self._experiment)
        why = "another one was started, and Comet keeps one a process alive" if replaced else "it was ended"
        raise Refusal(
            "tracker_sink_closed",
            f"The Comet experiment takes nothing more: {why}.",
            remedy="Close the sink before the experiment ends, and before another one starts.",
            sink=self._state.name,
            reason="replaced" if replaced else "ended",
        )


def _require_experiment(experiment: Any) -> None:
    calls = all(callable(getattr(experiment, name, None)) for name in ("log_metric", "log_text", "flush"))
    if not calls or not all(hasattr(experiment, name) for name in ("alive", "ended", "disabled")):
        message = "The object is no Comet experiment."
        raise _settings_refusal(message, "Pass a comet_ml.OfflineExperiment or Experiment.", type(experiment).__name__)
    if experiment.disabled:
        message = "The experiment is disabled: Comet drops everything that is logged to it."
        remedy = "Leave out disabled=True and COMET_AUTO_LOG_DISABLE, or leave the sink out."
        raise _settings_refusal(message, remedy, "disabled")


def _is_offline(experiment: Any) -> bool:
    return any(base.__name__ == "OfflineExperiment" for base in type(experiment).__mro__)


def _live_experiment() -> Any:
    get: Any = getattr(sys.modules.get("comet_ml"), "get_global_experiment", None)
    return get() if callable(get) else None


def _require_storable_name(tag: str) -> None:
    if len(tag) > LONGEST_NAME:
        message = f"Comet cuts names of metrics at {LONGEST_NAME} characters."
        raise _tag_refusal(message, "Choose a shorter name, or log it as text.", tag, length=len(tag))
    if tag == OWN_METRIC:
        raise _tag_refusal("Comet adds a metric of this name by itself.", "Choose another tag.", tag)


def _require_printable(point: ScalarPoint) -> None:
    # Comet's writer would end in the middle of the line, and the next message would follow there.
    if not isinstance(point.value, int):
        return
    try:
        str(point.value)
    except ValueError:
        raise Refusal(
            "tracker_value_unsupported",
            "Comet writes integers in decimal digits, and Python prints no more than some thousand of them.",
            remedy="Log it as text, in hexadecimal digits for example.",
            tag=point.tag,
            bits=int(point.value).bit_length(),
        ) from None


def _tag_refusal(message: str, remedy: str, tag: str, **fields: object) -> Refusal:
    return Refusal("tracker_tag_unsafe", message, remedy=remedy, tag=tag, store="Comet", **fields)


def _settings_refusal(message: str, remedy: str, value: str) -> Refusal:
    return Refusal("tracker_sink_settings_invalid", message, remedy=remedy, setting="experiment", value=value)
