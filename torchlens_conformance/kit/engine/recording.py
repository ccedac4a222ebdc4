"""Sinks that only remember, and one that fails at the n-th point. They share no code with the sinks of the project."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .adapter import Spellings, code_of
from .observation import ACKNOWLEDGED, RAISED, REFUSED, Event, Row


class Clock:
    """Counts the operations of a case, so that every row knows during which one it came."""

    def __init__(self) -> None:
        self.now = 0


class RecordingSink:
    """Keep every point as a :class:`Row`.

    Args:
        clock: The case's clock.
        spellings: The spellings that the profile accepts.
        words: The capability words that it advertises.
    """

    def __init__(
        self,
        clock: Clock,
        spellings: Spellings,
        *,
        words: tuple[str, ...] = ("scalar", "raw_histogram", "text_manifest"),
    ) -> None:
        self._clock, self._spellings, self._words = clock, spellings, words
        self.rows: list[Row] = []
        self.closed = 0

    def capabilities(self) -> frozenset[str]:
        """Return the words. Clause: PROT-2."""
        return frozenset(self._words)

    def emit_scalar(self, point: Any) -> None:
        """Keep one scalar."""
        self._keep(Row("scalar", self._spellings.tag(point.tag), point.step, value=point.value, during=self._clock.now))

    def emit_histogram(self, point: Any) -> None:
        """Keep one histogram."""
        counts, edges = point.counts, point.edges
        row = Row(
            "histogram",
            self._spellings.tag(point.tag),
            point.step,
            counts=counts if type(counts) is tuple else tuple(counts),
            edges=edges if type(edges) is tuple else tuple(edges),
            summary=dict(point.summary),
            during=self._clock.now,
        )
        self._keep(row)

    def emit_text(self, point: Any) -> None:
        """Keep one text."""
        self._keep(Row("text", self._spellings.tag(point.tag), point.step, text=point.text, during=self._clock.now))

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Count how often it was closed."""
        self.closed += 1

    def _keep(self, row: Row) -> None:
        self.rows.append(row)


class HoldingSink(RecordingSink):
    """Say that the store holds steps already, as a resumed one does. Clause: PROT-11.

    Args:
        clock: The case's clock.
        spellings: The spellings that the profile accepts.
        last: The last step that it holds.
    """

    def __init__(self, clock: Clock, spellings: Spellings, *, last: int) -> None:
        super().__init__(clock, spellings)
        self._last = last

    def last_step(self) -> int:
        """Return the last step that it holds."""
        return self._last


class FailingSink(RecordingSink):
    """Raise at every point from the ``fails_at``-th on, and count the calls.

    Args:
        clock: The case's clock.
        spellings: The spellings that the profile accepts.
        fails_at: The number of the first point that it does not take, from 1.
    """

    def __init__(self, clock: Clock, spellings: Spellings, *, fails_at: int) -> None:
        super().__init__(clock, spellings)
        self._fails_at = fails_at
        self.calls = 0

    def _keep(self, row: Row) -> None:
        self.calls += 1
        if self.calls >= self._fails_at:
            raise OSError(f"planted failure at point {self.calls}")
        super()._keep(row)


class SlowSink(RecordingSink):
    """Hang once, for a while, at its ``hangs_at``-th point; it takes that point and all others.

    Args:
        clock: The case's clock.
        spellings: The spellings that the profile accepts.
        hangs_at: The number of the point, from 1; 0 for never.
        seconds: How long it hangs.
    """

    def __init__(self, clock: Clock, spellings: Spellings, *, hangs_at: int, seconds: float) -> None:
        super().__init__(clock, spellings)
        self._hangs_at, self._seconds = hangs_at, seconds
        self._calls = 0

    def _keep(self, row: Row) -> None:
        self._calls += 1
        if self._calls == self._hangs_at:
            time.sleep(self._seconds)
        super()._keep(row)


class EndingSink(RecordingSink):
    """Raise where its end begins: at every flush, or at close; or be interrupted at a point.

    Args:
        clock: The case's clock.
        spellings: The spellings that the profile accepts.
        raises_in: ``flush``, ``close``, ``emit`` (an interrupt from the keyboard) or nothing.
    """

    def __init__(self, clock: Clock, spellings: Spellings, *, raises_in: str) -> None:
        super().__init__(clock, spellings)
        self._raises_in = raises_in

    def flush(self) -> None:
        """Raise, if that is its way."""
        if self._raises_in == "flush":
            raise OSError("planted failure in flush")

    def close(self) -> None:
        """Count, and raise, if that is its way."""
        super().close()
        if self._raises_in == "close":
            raise OSError("planted failure in close")

    def _keep(self, row: Row) -> None:
        if self._raises_in == "emit" and len(self.rows) == _INTERRUPTED_AT:
            raise KeyboardInterrupt("planted interrupt")
        super()._keep(row)


_INTERRUPTED_AT = 12


class Log:
    """The events of one case.

    Args:
        clock: The case's clock; each event moves it on.
        spellings: The spellings that the profile accepts.
    """

    def __init__(self, clock: Clock, spellings: Spellings) -> None:
        self._clock, self._spellings = clock, spellings
        self.events: list[Event] = []

    @contextmanager
    def doing(self, what: str, step: Any = None) -> Iterator[None]:
        """Note what becomes of the block; whatever it raises is noted and goes no further."""
        self._clock.now = len(self.events)
        try:
            yield
        except Exception as error:
            self.events.append(self.event_of(what, error, step))
        else:
            self.events.append(Event(what, ACKNOWLEDGED, step=step))

    def event_of(self, what: str, error: BaseException, step: Any = None) -> Event:
        """Return the event of something that raised."""
        code = self._spellings.code(code_of(error))
        text = f"{type(error).__name__}: {error}"[:300]
        return Event(what, RAISED if code is None else REFUSED, code, text, step)

    @property
    def last(self) -> Event:
        """The latest event."""
        return self.events[-1]
