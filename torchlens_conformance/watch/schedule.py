"""The step law: which steps may open, and what is due at them (STEP-2..5). A plain state machine, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.points import as_step
from ..protocol.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Due:
    """What is due at one step.

    Attributes:
        step: The caller's step.
        scalars: Whether the step is sampled.
        histograms: Whether it has histograms too; then it has scalars.
    """

    step: int
    scalars: bool
    histograms: bool


class StepLaw:
    """Opens and closes steps.

    Args:
        every: Steps that it divides are sampled, on the caller's axis.
        hist_every: The same for histograms; None for none.
        last_step: What a resumed store already holds, or None.

    Attributes:
        first: The first step that opened, or None.
        last: The last step that opened, or None.
        segment: Number of the running segment, from 0.
        opened: How many steps opened.
        sampled: How many of them produced data.

    Clause: STEP-2, STEP-3, STEP-4, STEP-5.
    """

    __slots__ = (
        "_every",
        "_floor",
        "_hist_every",
        "_open",
        "_pending",
        "first",
        "last",
        "opened",
        "sampled",
        "segment",
    )

    def __init__(self, *, every: int, hist_every: int | None = None, last_step: int | None = None) -> None:
        self._every = every
        self._hist_every = hist_every
        self._floor = last_step
        self._pending = True
        self._open: Due | None = None
        self.first: int | None = None
        self.last: int | None = None
        self.segment = 0
        self.opened = 0
        self.sampled = 0

    @property
    def current(self) -> Due | None:
        """What is due at the open step; None between steps."""
        return self._open

    def due(self, step: int) -> Due:
        """Return what would be due at ``step`` if it opened now; changes nothing. Clause: STEP-4, STEP-5."""
        histograms = self._hist_every is not None and (self._pending or step % self._hist_every == 0)
        return Due(step, histograms or self._pending or step % self._every == 0, histograms)

    def sample_next(self) -> None:
        """Sample the next step whatever its number: what was due at this one could not be taken. Clause: STEP-4."""
        self._pending = True

    def check(self, step: object, *, new_segment: bool = False) -> int:
        """Return ``step`` as an integer if it may open now, or refuse; changes nothing.

        Raises ``watch_step_conflict`` inside another step, ``watch_step_invalid``, and ``watch_step_regression`` unless
        ``new_segment`` is true. Clause: STEP-2, STEP-3.
        """
        if self._open is not None:
            raise Refusal(
                "watch_step_conflict",
                "A step is open already; steps never nest.",
                remedy="Leave the first step scope before the next one is entered.",
                open_step=self._open.step,
                step=repr(step),
            )
        number = require_step(step)
        if self._floor is not None and number <= self._floor and not new_segment:
            raise Refusal(
                "watch_step_regression",
                "Steps of a segment increase strictly.",
                remedy="Give a larger step, or declare a resumed run with new_segment=True.",
                step=number,
                last_step=self._floor,
            )
        return number

    def open(self, step: object, *, new_segment: bool = False) -> Due:
        """Open a step and return what is due at it; refuses as :meth:`check` does. Clause: STEP-2..5."""
        number = self.check(step, new_segment=new_segment)
        if new_segment and self._floor is not None:
            self.segment += 1
        self._floor = self.last = number
        self.first = number if self.first is None else self.first
        self.opened += 1
        self._open = self.due(number)
        return self._open

    def close(self, *, produced: bool) -> None:
        """Close the open step. Until one ``produced`` data, every step counts as the first eligible one."""
        self._open = None
        if produced:
            self._pending = False
            self.sampled += 1


def require_step(step: object) -> int:
    """Return ``step`` as an integer in 0 .. 2**63-1, or refuse ``watch_step_invalid``. Clause: STEP-3, POINT-3."""
    try:
        return as_step(step)
    except Refusal as refusal:
        raise Refusal("watch_step_invalid", refusal.message, remedy=refusal.remedy, **refusal.fields) from None
