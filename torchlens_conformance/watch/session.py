"""The session: what the caller holds (STEP-1, CLOSE-1..4)."""

from __future__ import annotations

import warnings
import weakref
from dataclasses import dataclass
from types import TracebackType

from ..protocol.ledger import Ledger
from ..protocol.refusals import Refusal
from ..protocol.tags import CHECK_OUTCOMES
from .drain import Drain
from .emission import Emitter
from .engine import Engine
from .hooks import HookSet
from .operations.model import OperationTrace
from .plan import PlanReport
from .registry import Registration
from .report import CloseReport
from .rows import TagBook
from .schedule import StepLaw
from .settings import WatchSettings
from .skips import Skips
from .watched import Watched


class WatchUnclosedWarning(ResourceWarning):
    """A watch session was dropped without close(): its hooks are gone, and so is its close report."""


@dataclass(slots=True)
class Parts:
    """What a session is made of; put together by ``attach``.

    Attributes:
        engine: The life of a step; None when the session is disabled or mute.
        muted: Why nothing is collected here (``rank 1``, the environment), or None.
    """

    watched: Watched
    settings: WatchSettings
    plan: PlanReport
    law: StepLaw
    skips: Skips
    tags: TagBook
    ledger: Ledger
    emitter: Emitter
    drain: Drain
    engine: Engine | None
    hooks: HookSet
    registration: Registration
    close_sinks: bool
    disabled_by: str | None
    silent: bool
    notes: list[str]


class StepScope:
    """One step of the caller's: ``with watch.step(n):``. Entered once."""

    def __init__(self, session: WatchSession, step: object, scaler: object | None, new_segment: bool) -> None:
        self._session = session
        self._step = step
        self._scaler = scaler
        self._new_segment = new_segment

    def __enter__(self) -> StepScope:
        self._session._open_step(self._step, self._scaler, self._new_segment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, trace
        self._session._close_step(error)


class WatchSession:
    """A watch on one model, from attach to close; made by :func:`~torchlens_conformance.watch.watch`.

    It is a context manager: leaving it closes it. Emission is synchronous. Experimental.

    Clause: STEP-1, CLOSE-1, CLOSE-2, CLOSE-3, CLOSE-4.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._report: CloseReport | None = None
        self._finalizer = weakref.finalize(self, _abandon, parts.hooks, parts.registration, parts.settings.run_id)
        self._finalizer.atexit = False

    def __enter__(self) -> WatchSession:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, trace
        self._close(error)

    def step(self, n: object, *, scaler: object | None = None, new_segment: bool = False) -> StepScope:
        """Return the scope of one step; everything is checked when it is entered.

        Args:
            n: The caller's step, an integer in 0 .. 2**63-1 that grows within a segment.
            scaler: The gradient scaler that this step uses, so that the loss scale and skipped steps are seen.
            new_segment: Declares a resumed run: the step may be smaller than the last one.

        Entering raises ``watch_step_conflict``, ``watch_step_invalid``, ``watch_step_regression``,
        ``tracker_scale_invalid`` and ``watch_session_closed``, and leaves the session usable. Leaving raises
        ``watch_phase_missing``, unless an exception unwinds. Clause: STEP-1, STEP-2, STEP-3, STEP-7, AMP-1.
        """
        return StepScope(self, n, scaler, new_segment)

    def emit_check(self, name: str, outcome: str, step: object = None) -> None:
        """Emit the row of one check, ``torchlens/check/<name>`` with 0 pass, 1 warn, 2 fail.

        Args:
            name: One safe, non-empty component.
            outcome: ``pass``, ``warn`` or ``fail``.
            step: The caller's step; the last seen one, or 0, when left out.

        Raises ``watch_check_invalid``, ``watch_step_invalid`` and ``watch_session_closed``. Clause: TAG-1.
        """
        from ..protocol.tags import require_component
        from .schedule import require_step

        self._require_open()
        parts = self._parts
        try:
            require_component(name, what="name")
        except Refusal as refusal:
            raise _check_refusal(name, outcome) from refusal
        if outcome not in CHECK_OUTCOMES:
            raise _check_refusal(name, outcome)
        number = require_step((parts.law.last or 0) if step is None else step)
        if not parts.silent:
            parts.emitter.check(name, number, CHECK_OUTCOMES[outcome])

    def plan_report(self) -> PlanReport:
        """Return sites, elements, bytes a step, cadences and cost tiers; its text is for people. Clause: XFER-1."""
        return self._parts.plan

    @property
    def operations(self) -> OperationTrace | None:
        """What the discovery forward of op grain saw, labels and shapes; else None. Clause: TIER-3, GRAPH-1."""
        return self._parts.watched.trace

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._report is not None

    def close(self) -> CloseReport:
        """Close the session and return its report; again, return the same report.

        Hooks are removed, the last step is sampled if it was not, and sinks are flushed and, unless another session
        holds them or ``close_sinks=False``, closed. Raises ``watch_close_empty`` when steps were seen and no data
        arrived anywhere, with the report as the error's attribute ``report``. Clause: CLOSE-1..4, ATTACH-7.
        """
        if self._report is not None:
            return self._report
        return self._close(None)

    def _open_step(self, step: object, scaler: object | None, new_segment: bool) -> None:
        self._require_open()
        parts = self._parts
        if parts.engine is not None:
            parts.engine.open(step, scaler=scaler, new_segment=new_segment)
        else:
            parts.law.open(step, new_segment=new_segment)
            if parts.law.opened == 1 and not parts.silent:
                parts.emitter.run("disabled", parts.law.last or 0, 1)

    def _close_step(self, error: BaseException | None) -> None:
        if self._report is not None:
            return  # Closed inside the scope.
        if self._parts.engine is not None:
            self._parts.engine.close_scope(error)
        else:
            self._parts.law.close(produced=False)

    def _close(self, error: BaseException | None) -> CloseReport:
        if self._report is not None:
            return self._report
        parts = self._parts
        self._finalizer.detach()
        try:
            parts.hooks.remove()
            if parts.engine is not None:
                _end_collection(parts, parts.engine, error)
            elif not parts.silent and parts.law.opened == 0:
                parts.emitter.run("disabled", 0, 1)
            parts.emitter.event("closed", parts.law.last, {})
        finally:
            held = parts.registration.release()
            kept = held if parts.close_sinks else [row.sink for row in parts.ledger.rows]
            parts.ledger.close(keep_open=kept)
            self._report = make_report(parts)
        if error is None and is_empty(parts):
            refusal = _empty_refusal(parts)
            refusal.report = self._report  # type: ignore[attr-defined]
            raise refusal
        return self._report

    def _require_open(self) -> None:
        if self._report is not None:
            raise Refusal(
                "watch_session_closed",
                "This watch session is closed.",
                remedy="Attach a new one; a closed session takes nothing more.",
                run_id=self._parts.settings.run_id,
            )


def _end_collection(parts: Parts, engine: Engine, error: BaseException | None) -> None:
    try:
        engine.end(error)
        if error is None:
            parts.drain.finalise()
        else:
            parts.drain.settle()
            parts.drain.announce(parts.law.last or 0)
    except Exception as problem:
        # Nothing at close may hide what the run has given so far.
        parts.skips.add("collection_failed", parts.law.last, f"{type(problem).__name__}: {problem}")


def is_empty(parts: Parts) -> bool:
    """Return whether steps were seen, no data arrived anywhere, and not every step says why. Clause: CLOSE-2."""
    if parts.engine is None or not parts.law.opened or parts.emitter.arrived:
        return False
    return parts.skips.steps < parts.law.opened


def make_report(parts: Parts) -> CloseReport:
    """Return the close report. Clause: CLOSE-1."""
    law, drain, skips = parts.law, parts.drain, parts.skips
    notes = [*parts.notes, *drain.notes]
    if parts.emitter.event_failure is not None:
        notes.append(f"event_stream raised and was given up: {parts.emitter.event_failure}")
    return CloseReport(
        parts.watched.signals,
        parts.plan.matched_sites,
        law.opened,
        law.sampled,
        law.first,
        law.last,
        drain.forced_final,
        dict(parts.emitter.computed),
        parts.emitter.sink_reports(),
        tuple(drain.missing_phases),
        tuple(skips.kept),
        dict(skips.counts),
        dict(drain.writer.unscaled),
        law.segment,
        parts.settings.run_id,
        parts.disabled_by,
        tuple(notes),
    )


def _empty_refusal(parts: Parts) -> Refusal:
    failures = {row.name: str(row.failure.text) for row in parts.ledger.rows if row.failure is not None}
    return Refusal(
        "watch_close_empty",
        "The run saw steps, and no data point of it arrived anywhere.",
        remedy="Look at this error's report: failed sinks, missing phases, whether the optimizer ever stepped.",
        steps=parts.law.opened,
        computed=parts.emitter.computed["data_points"],
        failed_sinks=failures,
        skips=dict(parts.skips.counts),
    )


def _check_refusal(name: object, outcome: object) -> Refusal:
    return Refusal(
        "watch_check_invalid",
        "A check row needs a name of one safe component, and an outcome.",
        remedy=f"Give a name such as 'loss_is_finite' and one of {', '.join(CHECK_OUTCOMES)}.",
        name=repr(name),
        outcome=repr(outcome),
    )


def _abandon(hooks: HookSet, registration: Registration, run_id: str) -> None:
    """Clean up after a session that was dropped; the sinks stay open for whoever made them."""
    hooks.remove()
    registration.release()
    warnings.warn(
        f"The watch session of run {run_id} was never closed; use it as a context manager or call close().",
        WatchUnclosedWarning,
        stacklevel=2,
    )
