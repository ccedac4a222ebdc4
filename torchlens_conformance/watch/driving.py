"""What drives a session for a framework, and so sees more of its steps than a scope does (CB-1, STEP-9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .session import WatchSession

if TYPE_CHECKING:
    from .activations import ForwardRecord


def is_due(session: WatchSession) -> bool:
    """Return whether a step is open and sampled."""
    due = session._parts.law.current
    return due is not None and due.scalars


def sample_next(session: WatchSession) -> None:
    """Sample the next step, whatever its number: what was due at this one could not be taken. Clause: STEP-4."""
    session._parts.law.sample_next()


def look_at_scaler(session: WatchSession) -> None:
    """Look at the scaler of the open step between two of its updates, which erase what it did. Clause: AMP-8."""
    engine = session._parts.engine
    if engine is not None:
        engine.look_at_scaler()


def pause(session: WatchSession) -> ForwardRecord | None:
    """Observe no forward for a while; return what :func:`go_on` takes, None when nothing is observed."""
    engine = session._parts.engine
    if engine is None or engine.observer.record is None:
        return None
    record, engine.observer.record = engine.observer.record, None
    return record


def go_on(session: WatchSession, record: ForwardRecord | None) -> None:
    """Observe forwards again, unless their step is over."""
    engine = session._parts.engine
    if engine is not None and record is not None and record.open:
        engine.observer.record = record
