"""The step law as a plain model: what each operation has to do, whatever the engine is (STEP-1..4, STEP-7, STEP-8).

No torch. Where the specification leaves a choice, the model allows both and follows what the engine did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

OK: str | None = None
"""The operation returns."""

ANY_REFUSAL = "any refusal"
"""It is refused, by whatever code."""

INVALID_STEPS = (-1, 2.0, True, 2**63, "3", None)
"""Steps that no engine may take."""

EVERY = 3
"""The cadence of the sessions that scripts drive."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a script.

    Args:
        what: ``open``, ``train``, ``overflow``, ``leave``, ``raise`` or ``close``.
        step: The step of ``open``.
        new_segment: Of ``open``.
    """

    what: str
    step: Any = None
    new_segment: bool = False

    def __str__(self) -> str:
        """The operation as a person writes it."""
        if self.what != "open":
            return self.what
        return f"open({self.step!r}{', new_segment=True' if self.new_segment else ''})"


@dataclass(slots=True)
class Scope:
    """What became of one step scope.

    Args:
        step: The caller's step.
        first: Whether no scope was opened before it.
        segment: Number of its segment.
    """

    step: int
    first: bool
    segment: int
    boundary: bool = False
    overflow: bool = False
    failed: bool = False
    left: bool = False


@dataclass(slots=True)
class StepModel:
    """The state of a session as the specification has it."""

    scopes: list[Scope] = field(default_factory=list)
    open: Scope | None = None
    last: int | None = None
    closed: bool = False
    segment: int = 0

    def allowed(self, op: Op) -> set[str | None]:
        """Return the codes that ``op`` may refuse by; :data:`OK` when it may return."""
        if op.what == "open":
            return self._allowed_open(op)
        if op.what in ("train", "overflow"):
            return {OK} if self.closed or self.open is not None else {"watch_step_source_missing"}
        if op.what == "leave" and self.open is not None:
            done = self.open.boundary or self.open.overflow
            return {OK} if done else {"watch_phase_missing"}
        if op.what == "close":
            return self._allowed_close()
        return {OK}

    def _allowed_open(self, op: Op) -> set[str | None]:
        if self.closed:
            return {ANY_REFUSAL}
        wrong: set[str | None] = set()
        valid = type(op.step) is int and 0 <= op.step < 2**63
        if not valid:
            wrong.add("watch_step_invalid")
        if self.open is not None:
            wrong.add("watch_step_conflict")
        if valid and self.last is not None and op.step <= self.last and not op.new_segment:
            wrong.add("watch_step_regression")
            # Whether a step that failed may be tried again is not said.
            if wrong == {"watch_step_regression"} and op.step == self.last and self.scopes[-1].failed:
                wrong.add(OK)
        return wrong or {OK}

    def _allowed_close(self) -> set[str | None]:
        shown = any(scope.boundary and scope.left and not scope.failed for scope in self.scopes)
        if shown or not self.scopes:
            return {OK}
        if all(scope.overflow and not scope.failed for scope in self.scopes):
            return {OK}
        # A scope that failed may have left rows or a named skip behind, or nothing.
        return {OK, "watch_close_empty"}

    def apply(self, op: Op, code: str | None) -> None:
        """Take the operation as it went."""
        if op.what == "open" and code is OK:
            self.segment += op.new_segment
            self.open = Scope(op.step, not self.scopes, self.segment)
            self.scopes.append(self.open)
            self.last = op.step
        elif self.open is not None and op.what in ("train", "overflow"):
            self.open.boundary |= op.what == "train"
            self.open.overflow |= op.what == "overflow"
        elif self.open is not None and op.what in ("leave", "raise"):
            self.open.left = True
            self.open.failed = op.what == "raise" or code is not OK
            self.open = None
        elif op.what == "close":
            self.closed = True


def must_sample(scope: Scope) -> bool:
    """Say whether a scope has to have data rows. Clause: STEP-4."""
    done = scope.boundary and scope.left and not scope.failed and not scope.overflow
    return done and (scope.first or scope.step % EVERY == 0)


def may_sample(scope: Scope, earlier: Sequence[Scope]) -> bool:
    """Say whether a scope may have data rows: the first of those that had anything to show, also of its segment."""
    if not scope.boundary:
        return False
    shown = [other for other in earlier if other.segment == scope.segment and other.boundary and not other.failed]
    return scope.step % EVERY == 0 or not shown
