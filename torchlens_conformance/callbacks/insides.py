"""What a callback sees of its session that a user's scope does not, and how one session goes on where another ended."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..watch import CloseReport, WatchSession
from ..watch.settings import BOUNDARY_SIGNALS


@dataclass(frozen=True, slots=True)
class OpenStep:
    """The open step of a session, before it is left.

    Attributes:
        session: The session.
        step: The caller's step.
        scalars: Whether the step is sampled.
        histograms: Whether it has histograms too.
        before: How many steps were sampled before it.
    """

    session: WatchSession
    step: int
    scalars: bool
    histograms: bool
    before: int

    def taken(self) -> Collection[int]:
        """Return the optimizers, by id, that the step gave data of; asked when it was left."""
        if self.session._parts.law.sampled == self.before:
            return ()
        return [id(optimizer) for optimizer in self.session._parts.drain.stepped_last]


def open_step(session: WatchSession | None) -> OpenStep | None:
    """Return the open step of a session, or None."""
    law = None if session is None or session.closed else session._parts.law
    if session is None or law is None or law.current is None:
        return None
    return OpenStep(session, law.current.step, law.current.scalars, law.current.histograms, law.sampled)


def falls_due(session: WatchSession, step: int) -> tuple[bool, bool]:
    """Return whether a later step is sampled, and whether it has histograms, as things stand."""
    due = session._parts.law.due(step)
    return due.scalars, due.histograms


def optimizers_of(session: WatchSession) -> list[int]:
    """Return the optimizers whose boundaries are watched, by id; none when only outputs of modules are."""
    engine = session._parts.engine
    if engine is None or not BOUNDARY_SIGNALS.intersection(engine.watched.signals):
        return []
    return [id(optimizer) for optimizer in engine.owners.all()]


def leave_sinks_open(session: WatchSession) -> None:
    """Let the session's close flush its sinks and leave them open, for the session that goes on in its place."""
    session._parts.close_sinks = False


def go_on_after(session: WatchSession, report: CloseReport) -> None:
    """Let a session, before its first step, go on where another one into the same sinks ended.

    Its first step begins a segment when it is opened with ``new_segment=True``, and its number is the next one.
    Clause: STEP-2.
    """
    law = session._parts.law
    if report.last_step is not None:
        law._floor = report.last_step
        law.segment = max(law.segment, report.segments)
