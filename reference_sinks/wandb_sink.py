"""WandbSink: points as history rows of a live wandb run (WANDB-1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from torchlens_conformance.protocol import (
    WANDB_SAFE_DESCRIPTOR,
    GridDescriptor,
    HistogramPoint,
    Refusal,
    RelayState,
    ScalarPoint,
    TextPoint,
)

from .encodable import require_encodable_tag, require_encodable_text
from .packages import require_package
from .relays import wandb_relay_is_on
from .sink_state import SinkState
from .wandb_service_log import ServiceLog

RESERVED_TAGS = frozenset({"", "_step", "_timestamp", "_runtime", "_wandb"})
"""Keys that wandb drops or overwrites in a row (measured with 0.30.0)."""

_INT64 = range(-(2**63), 2**63)


class WandbSink:
    """Write points to a live wandb run.

    The sink neither starts nor finishes runs. Several points of one step become one row of the run's history. What the
    store holds afterwards:

    - Scalars are exact: every float with its sign, NaN and the infinities, integers of 64 bits.
    - Histograms keep counts and edges exactly, up to 512 buckets; the summary (min, max, num, sum, sum_squares) has no
      place and is dropped.
    - Texts are exact.

    wandb ignores a row whose step is smaller than the run's current one, and overwrites a tag that is logged twice at
    one step; it says neither. The sink refuses both. It learns the run's step from the run before each new step, so
    ``run.log`` without a step, elsewhere in the program, cannot overtake it unseen.

    wandb writes its offline file in blocks of 32 KiB and the last row only at the next step: what is not on disk yet is
    lost when the process is killed, and nothing that wandb offers changes that (measured with 0.30.0: no time and no
    call but 32 KiB of filler in the console log). The file is whole some milliseconds after ``run.finish()``, which is
    the caller's to call after ``close()``; a process that ends right then loses its last rows, so wait for
    :func:`~reference_sinks.readers.wandb.wandb_run_has_ended`. On a full disk wandb's service drops every row and tells
    only its own log; the sink looks there at every flush and at close, and refuses from then on.

    Args:
        run: What ``wandb.init`` returned.

    Raises ``tracker_sink_unavailable``, ``tracker_sink_settings_invalid`` (no run, or a disabled one, which drops
    everything) and ``tracker_sink_closed`` (a finished run). Every ``emit_*`` raises ``tracker_sink_closed``,
    ``tracker_sink_forked``, ``tracker_step_regressed``, ``tracker_point_repeated``, ``tracker_tag_unsafe``,
    ``tracker_value_unsupported`` and, once a flush has met it, ``tracker_sink_write_failed``.

    Clause: WANDB-1, PROT-1, PROT-6, PROT-10, PROT-11, POINT-3.
    """

    def __init__(self, run: Any) -> None:
        self._library = require_package("wandb", extra="wandb")
        self._state = SinkState(type(self).__name__)
        if not callable(getattr(run, "log", None)) or not hasattr(type(run), "step"):
            raise _settings_refusal("The object is no wandb run.", "Pass what wandb.init returned.", type(run).__name__)
        if getattr(run, "disabled", False):
            raise _settings_refusal(
                "The run is disabled: wandb drops everything that is logged to it.",
                "Use mode='offline', or leave the sink out.",
                "disabled",
            )
        self._run = run
        self._require_live()
        self.bucket_cap: int = self._library.Histogram.MAX_LENGTH
        self._lock = threading.Lock()
        self._step = -1
        self._tags: set[str] = set()
        self._taken = 0
        self._log = ServiceLog(run)

    def capabilities(self) -> frozenset[str]:
        """Return what a run's history carries: scalars, raw histograms and texts. Clause: PROT-2."""
        return frozenset({"scalar", "raw_histogram", "text_manifest"})

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Log one number; an int beyond 64 bits that no float holds exactly is refused. Clause: WANDB-1."""
        self._emit(point.tag, point.step, lambda: _storable(point))

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Log one histogram by its counts and edges; over the cap refuses ``tracker_histogram_bucket_cap``.

        Clause: WANDB-1, ATTACH-4.
        """
        self._emit(point.tag, point.step, lambda: self._histogram(point))

    def emit_text(self, point: TextPoint) -> None:
        """Log one text as a string value. Clause: WANDB-1."""
        self._emit(point.tag, point.step, lambda: _storable_text(point))

    def flush(self) -> None:
        """Block until wandb's service has taken everything emitted; that is not yet the disk.

        Raises ``tracker_sink_write_failed`` once the service has told its log that it could not write. Clause: PROT-6,
        PROT-10.
        """
        self._state.require_usable()
        if not self._run_is_finished():
            # The service answers in order, so its answer comes after everything before the question.
            _ = self._run.step
        self._log.require_written(look=True)

    def close(self) -> None:
        """Take nothing more; the run stays open. Again, or in a forked child, it does nothing.

        Raises ``tracker_sink_write_failed`` like :meth:`flush`, and is closed all the same. Clause: PROT-6.
        """
        first = self._state.close()
        self._tags.clear()
        if first:
            self._log.require_written(look=True)

    def preflight_histograms(self, descriptor: GridDescriptor) -> None:
        """Refuse ``tracker_histogram_bucket_cap`` for a grid over wandb's cap. Clause: ATTACH-4, WANDB-1."""
        self._require_under_cap(descriptor.bucket_count)

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Refuse ``tracker_tag_unsafe`` for tags that wandb drops or overwrites, and any tag while its relay is on.

        With wandb's TensorBoard relay on, ``run.log`` ignores ``step`` (measured with 0.30.0: steps 7 and 9 arrive as 0
        and 1); that refuses ``tracker_relay_step_unsupported`` here, while ``emit_*`` still works.

        Clause: PROT-7, POINT-3.
        """
        for tag in tags:
            _require_storable_tag(tag)
        if wandb_relay_is_on():
            raise Refusal(
                "tracker_relay_step_unsupported",
                "wandb's TensorBoard relay is on, and then run.log replaces every step by a row counter.",
                remedy="Leave out sync_tensorboard=True, or call wandb.tensorboard.unpatch() before the run starts.",
                evidence='wandb.patched["tensorboard"] is not empty',
            )

    def default_histogram_descriptor(self) -> GridDescriptor:
        """Offer the grid of 497 buckets, which fits under the cap. Clause: WANDB-1, ATTACH-4."""
        return WANDB_SAFE_DESCRIPTOR

    def relay_state(self) -> RelayState:
        """Return ``emitted`` once something was logged: neither disk nor server is in sight. Clause: PROT-8."""
        state = "emitted" if self._taken else "computed"
        evidence = f"{self._taken} points were handed to the run; wandb writes them by the time the run has finished"
        if wandb_relay_is_on():
            evidence += "; its TensorBoard relay is on, so steps are replaced by a row counter"
        return RelayState(state, evidence)

    def last_step(self) -> int | None:
        """Return the largest step that the run can no longer take rows before, or None for a run without any.

        That is one less than the step the run is at: rows at the current step still join it. Clause: PROT-11.
        """
        if self._run_is_finished() or self._state.forked:
            return None
        current = int(self._run.step)
        return current - 1 if current > 0 else None

    def _emit(self, tag: str, step: int, value: Callable[[], object]) -> None:
        self._state.require_usable()
        self._log.require_written()
        self._require_live()
        _require_storable_tag(tag)
        data = {tag: value()}
        with self._lock:
            self._require_step(tag, step)
            self._run.log(data, step=step)
            self._tags.add(tag)
            self._taken += 1

    def _require_step(self, tag: str, step: int) -> None:
        if step != self._step:
            # One question to wandb's service a step, not a point: it costs more than the logging itself.
            current = int(self._run.step)
            if step < current:
                raise _step_refusal(tag, step, current, "the run is already at a later step")
            self._step = step
            self._tags.clear()
        elif tag in self._tags:
            raise _repeated_refusal(tag, step)
        else:
            # The client's own count of the steps it sent (the older name is of 0.19) costs nothing to look at.
            local = getattr(self._run, "_local_step", getattr(self._run, "_step", step))
            if isinstance(local, int) and local > step and not wandb_relay_is_on():
                raise _step_refusal(tag, step, local, "the run is already at a later step")

    def _histogram(self, point: HistogramPoint) -> object:
        self._require_under_cap(len(point.counts))
        if max(point.counts) not in _INT64:
            raise _value_refusal(point.tag, max(point.counts))
        return self._library.Histogram(np_histogram=(list(point.counts), list(point.edges)))

    def _require_under_cap(self, buckets: int) -> None:
        if buckets > self.bucket_cap:
            raise Refusal(
                "tracker_histogram_bucket_cap",
                f"wandb keeps histograms of up to {self.bucket_cap} buckets.",
                remedy="Use WANDB_SAFE_DESCRIPTOR (497 buckets), or leave descriptor= out to take the sink's offer.",
                cap=self.bucket_cap,
                buckets=buckets,
            )

    def _require_live(self) -> None:
        if self._run_is_finished():
            raise Refusal(
                "tracker_sink_closed",
                "The wandb run is finished.",
                remedy="Close the sink before run.finish(), and make a new one for a new run.",
                sink=self._state.name,
            )

    def _run_is_finished(self) -> bool:
        # A question to a finished run waits for 30 seconds, so the flag is looked at first.
        return bool(getattr(self._run, "_is_finished", False))


def _storable(point: ScalarPoint) -> int | float:
    value = point.value
    if isinstance(value, int) and value not in _INT64:
        # Such integers become floats in wandb's store.
        try:
            exact = float(value) == value
        except OverflowError:
            exact = False
        if not exact:
            raise _value_refusal(point.tag, value)
    return value


def _storable_text(point: TextPoint) -> str:
    # wandb itself would replace each lone surrogate by a question mark.
    require_encodable_text(point.text, tag=point.tag, store="wandb")
    return point.text


def _require_storable_tag(tag: str) -> None:
    require_encodable_tag(tag, store="wandb")
    if tag in RESERVED_TAGS:
        raise Refusal(
            "tracker_tag_unsafe",
            "wandb keeps this key for itself and drops or overwrites the value.",
            remedy="Choose another tag.",
            tag=tag,
            store="wandb",
        )


def _value_refusal(tag: str, value: int) -> Refusal:
    return Refusal(
        "tracker_value_unsupported",
        "wandb stores integers in 64 bits.",
        remedy="Log it as text, or use a sink that keeps integers, JSONLSink for example.",
        tag=tag,
        value=str(value)[:80],
    )


def _step_refusal(tag: str, step: int, current: int, why: str) -> Refusal:
    return Refusal(
        "tracker_step_regressed",
        f"wandb would lose this row: {why}.",
        remedy="Log in the order of the steps, and give run.log() the same steps everywhere.",
        tag=tag,
        step=step,
        current=current,
    )


def _repeated_refusal(tag: str, step: int) -> Refusal:
    return Refusal(
        "tracker_point_repeated",
        "wandb keeps one value a tag and step, the last one, and would drop the first without a word.",
        remedy="Log each tag once a step.",
        tag=tag,
        step=step,
    )


def _settings_refusal(message: str, remedy: str, value: str) -> Refusal:
    return Refusal("tracker_sink_settings_invalid", message, remedy=remedy, setting="run", value=value)
