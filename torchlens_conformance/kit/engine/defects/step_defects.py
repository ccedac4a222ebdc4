"""Defects about steps and the end: each is the plain session with one thing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ....protocol import Refusal
from ..plain_attach import Held
from ..plain_session import PlainSession
from .base import planted


class OwnCounter(PlainSession):
    """Numbers the rows by a counter of its own."""

    def row_step(self, step: int) -> int:
        """Count sampled steps from 0."""
        return len(self.sampled) - 1


class OwnAxis(PlainSession):
    """Samples every so many seen steps, not on the caller's axis."""

    seen = -1

    def due(self, step: int) -> bool:
        """Count seen steps."""
        self.seen += 1
        return self.seen % self.ask.every == 0 or self.histogram_due(step)


class RepeatsStep(PlainSession):
    """Takes the last step again."""

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Let a step equal to the last one pass."""
        super().enter(n, scaler, new_segment or n == self.last)


class TakesFloat(PlainSession):
    """Turns a float or a bool into an integer step."""

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Convert what is no integer."""
        super().enter(int(n) if isinstance(n, (float, bool)) else n, scaler, new_segment)


class InventsStep(PlainSession):
    """Goes on by a counter when there is no source of the step."""

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """Open a step nobody gave."""
        if self.open is None and self.ask.step is None:
            return None
        return super().before_step(optimizer, args, kwargs)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Do nothing for a step nobody gave."""
        if self.open is not None:
            super().after_step(optimizer, args, kwargs)


class LateRefusal(PlainSession):
    """Refuses a nested scope when it closes, after it has opened it."""

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Open whatever is open already."""
        self.open = None
        super().enter(n, scaler, new_segment)


class QuietPhase(PlainSession):
    """Closes a scope without its boundary and says nothing."""

    def leave(self) -> None:
        """Swallow the refusal."""
        with suppress(Refusal):
            super().leave()


class SwallowsException(PlainSession):
    """Swallows the loop's own exception."""

    @contextmanager
    def step(self, n: Any, *, scaler: Any = None, new_segment: bool = False) -> Iterator[None]:
        """Let nothing out of the scope."""
        self.enter(n, scaler, new_segment)
        try:
            yield
        except Exception:
            self.leave_raising()
            return
        self.leave()


class MasksException(PlainSession):
    """Raises a refusal of its own while the loop's exception unwinds."""

    def leave_raising(self) -> None:
        """Close the block as if nothing had happened."""
        self.leave()


class HeartbeatAtZero(PlainSession):
    """Writes heartbeat and manifest at step 0, whatever the first step is."""

    def heartbeat(self, step: int) -> None:
        """Write at step 0."""
        super().heartbeat(0)


class NoFinalSample(PlainSession):
    """Does not force the last sample at close."""

    def force_final_sample(self) -> bool:
        """Force nothing."""
        return False


class CallableOff(PlainSession):
    """Asks ``step=`` once and counts on from there."""

    asked: int | None = None

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """Open the block by a counter."""
        if self.open is None and self.ask.step is not None:
            self.asked = self.ask.step() if self.asked is None else self.asked + 2
            self.enter(self.asked, None, False)
        return super().before_step(optimizer, args, kwargs)


class StaleClosure(PlainSession):
    """Takes the gradients of the last evaluation of a closure."""

    def take_gradients(self, held: Held) -> None:
        """Take nothing at the first evaluation."""
        if not held.evaluations:
            super().take_gradients(held)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Take what is there at the end."""
        held = self.boundaries[-1]
        if held.evaluations:
            super().take_gradients(held)
        super().after_step(optimizer, args, kwargs)


class FirstOptimizer(PlainSession):
    """Takes every parameter as the first optimizer's."""

    def sites_of(self, optimizer: Any) -> Any:
        """Return all sites to whoever steps."""
        return self.sites


class EmitsAfterClose(PlainSession):
    """Goes on emitting after close."""

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Send a row although it is closed."""
        if self.report is not None:
            self.run_row("last_step", n, n)
        super().enter(n, scaler, new_segment)


class HeartbeatIsData(PlainSession):
    """Counts the heartbeat as data, so that an empty run looks populated."""

    def close(self) -> Any:
        """Close quietly."""
        with suppress(Refusal):
            return super().close()
        return self.report


class LeakedHook(PlainSession):
    """Leaves one hook behind."""

    def remove_hooks(self) -> None:
        """Forget the first one."""
        for hook in self.hooks[1:]:
            hook.remove()


class DoubleHooks(PlainSession):
    """Sets its hooks twice."""

    def install(self, optimizer: Any) -> list[Any]:
        """Set them twice."""
        return [*super().install(optimizer), *super().install(optimizer)]

    def is_repeated(self, optimizer: Any) -> bool:
        """Take what the second hook says for another boundary."""
        return False


class TakesEveryBoundary(PlainSession):
    """Sends rows again when an optimizer steps twice in one scope."""

    def is_repeated(self, optimizer: Any) -> bool:
        """Never notice."""
        return False


STEP_DEFECTS = (
    planted("own-counter", OwnCounter, "step.machine"),
    planted("takes-every-boundary", TakesEveryBoundary, "step.machine"),
    planted("own-axis", OwnAxis, "step.cadence"),
    planted("repeats-step", RepeatsStep, "step.increasing"),
    planted("takes-float", TakesFloat, "step.scopes"),
    planted("invents-step", InventsStep, "step.source"),
    planted("late-refusal", LateRefusal, "step.scopes"),
    planted("quiet-phase", QuietPhase, "step.phases"),
    planted("swallows-exception", SwallowsException, "step.exceptions", "close.hooks"),
    planted("masks-exception", MasksException, "step.exceptions"),
    planted("heartbeat-at-zero", HeartbeatAtZero, "step.first-rows"),
    planted("no-final-sample", NoFinalSample, "step.final-sample"),
    planted("callable-counts", CallableOff, "step.spellings"),
    planted("stale-closure", StaleClosure, "step.closure"),
    planted("one-optimizer", FirstOptimizer, "step.optimizers"),
    planted("emits-after-close", EmitsAfterClose, "close.final"),
    planted("heartbeat-is-data", HeartbeatIsData, "close.empty"),
    planted("leaked-hook", LeakedHook, "close.hooks"),
    planted("double-hooks", DoubleHooks, "values.once"),
)
"""The defects about steps and the end."""
