"""Defects about what surrounds a session: sinks, processes, compilers, the environment; each has one thing wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....protocol import Point
from ..adapter import Ask
from ..plain_attach import Held
from ..plain_session import PlainSession
from ..plain_surroundings import DISABLE, unwrapped
from .base import planted


class LosesPatience(PlainSession):
    """Sends a point to no further sink when one took long over it."""

    late = False

    def emit(self, point: Point, *, data: bool = False) -> None:
        """Begin anew."""
        self.late = False
        super().emit(point, data=data)

    def attempt(self, index: int, call: Callable[..., Any], *arguments: Any) -> bool:
        """Look at the clock."""
        if self.late:
            return False
        start = time.monotonic()
        taken = super().attempt(index, call, *arguments)
        self.late = time.monotonic() - start > _PATIENCE
        return taken


_PATIENCE = 0.9


class FlushPreventsClose(PlainSession):
    """Leaves a sink open whose flush raised."""

    def close_sinks(self) -> None:
        """Close what was flushed."""
        for index, sink in enumerate(self.sinks):
            if self.attempt(index, sink.flush):
                self.attempt(index, sink.close)


class EndsUntold(PlainSession):
    """Swallows what a sink raises at its end."""

    def close_sinks(self) -> None:
        """Latch nothing."""
        before = dict(self.failed)
        super().close_sinks()
        self.failed = before


class SwallowsInterrupts(PlainSession):
    """Takes an interrupt from the keyboard for a failure of the sink."""

    def attempt(self, index: int, call: Callable[..., Any], *arguments: Any) -> bool:
        """Catch everything."""
        try:
            return super().attempt(index, call, *arguments)
        except BaseException as error:
            self.latch(index, f"{type(error).__name__}: {error}")
            return False


class ClosureOnceMore(PlainSession):
    """Calls a closure once more, to see the gradients before the optimizer does."""

    def before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call it first."""
        for value in (*args[1:], *kwargs.values()):
            if callable(value):
                value()
        return super().before_step(optimizer, args, kwargs)


class HooksOnModules(PlainSession):
    """Sets hooks on modules that read a number from every output, for what is read at the optimizer."""

    def __init__(self, model: Any, sinks: Any, ask: Ask) -> None:
        super().__init__(model, sinks, ask)
        for module in unwrapped(model).modules():
            self.hooks.append(module.register_forward_hook(self.look))

    def look(self, module: Any, arguments: Any, output: Any) -> None:
        """Read one number, which a compiled graph has to stop for."""
        self.largest = float(output.detach().max())


class WrappedNames(PlainSession):
    """Names series by the wrapper of the model."""

    def __init__(self, model: Any, sinks: Any, ask: Ask) -> None:
        super().__init__(model, sinks, ask)
        if unwrapped(model) is not model:
            self.sites = dict(model.named_parameters())


class EveryRank(PlainSession):
    """Emits from every process of a data-parallel run."""

    def why_disabled(self, model: Any) -> str:
        """Look at the environment alone."""
        why = super().why_disabled(model)
        return why if why.startswith(DISABLE) else ""


class QuietRank(PlainSession):
    """Emits nothing from the other processes of a data-parallel run, and does not say why."""

    def facts(self, forced: bool) -> Any:
        """Leave the reason out."""
        told = super().facts(forced)
        return replace(told, disabled_by="") if self.disabled_by.startswith("rank") else told


class IgnoresDisable(PlainSession):
    """Collects although it was turned off."""

    def why_disabled(self, model: Any) -> str:
        """Look at the rank alone."""
        why = super().why_disabled(model)
        return "" if why.startswith(DISABLE) else why


class DisabledSilently(PlainSession):
    """Is turned off and does not tell."""

    def tell_disabled(self) -> None:
        """Tell nothing."""


class ReadsEnvironment(PlainSession):
    """Takes signals from an environment variable, whatever it was asked for."""

    def __init__(self, model: Any, sinks: Any, ask: Ask) -> None:
        named = os.environ.get("TORCHLENS_WATCH_SIGNALS")
        super().__init__(model, sinks, replace(ask, signals=tuple(named.split(","))) if named else ask)


class KeepsBound(PlainSession):
    """Compares a step with the largest one of all segments."""

    largest = -1

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Remember the largest one."""
        if self.open is None and self.report is None and type(n) is int and n >= 0 and not new_segment:
            self.last = None if self.last is None else max(self.last, self.largest)
        super().enter(n, scaler, new_segment)
        self.largest = max(self.largest, n)


class OverflowIsMissing(PlainSession):
    """Takes a step that the scaler left out for a missing boundary."""

    def leave(self) -> None:
        """Forget the scaler's records."""
        if not self.boundaries:
            self.scaler.records = {}
        super().leave()


class OneStage(PlainSession):
    """Reads the stage of the first optimizer for all of them."""

    def take_gradients(self, held: Held) -> None:
        """Take the factor of the first one."""
        if len(self.optimizers) > 1:
            held.factor = self.scaler.factor(self.optimizers[0])
        super().take_gradients(held)


class OverflowOfAll(PlainSession):
    """Leaves the whole step out when the scaler left one of several optimizers out."""

    def leave(self) -> None:
        """Drop all boundaries."""
        if any(map(self.scaler.left_out, self.optimizers)) and len(self.boundaries) < len(self.optimizers):
            self.boundaries = []
        super().leave()


class QuotientInHalf(PlainSession):
    """Divides by the scale in the gradient's own dtype."""

    def take_gradients(self, held: Held) -> None:
        """Divide before anything else."""
        super().take_gradients(held)
        for leaf, parameter in self.sites_of(held.optimizer).items():
            if parameter.grad is not None and held.factor is not None:
                held.gradients[leaf] = (parameter.grad.detach() / held.factor).double().flatten()


SURROUNDING_DEFECTS = (
    planted("keeps-bound", KeepsBound, "step.segments"),
    planted("overflow-is-missing", OverflowIsMissing, "step.overflows"),
    planted("one-stage", OneStage, "amp.several"),
    planted("overflow-of-all", OverflowOfAll, "amp.several"),
    planted("quotient-in-half", QuotientInHalf, "amp.derived-half"),
    planted("loses-patience", LosesPatience, "ledger.slow"),
    planted("flush-prevents-close", FlushPreventsClose, "ledger.ending"),
    planted("ends-untold", EndsUntold, "ledger.ending"),
    planted("swallows-interrupts", SwallowsInterrupts, "ledger.interrupts"),
    planted("closure-once-more", ClosureOnceMore, "guest.closure"),
    planted("hooks-on-modules", HooksOnModules, "compiled.graphs"),
    planted("wrapped-names", WrappedNames, "parallel.ranks"),
    planted("every-rank", EveryRank, "parallel.ranks"),
    planted("quiet-rank", QuietRank, "parallel.ranks"),
    planted("ignores-disable", IgnoresDisable, "environment.disables"),
    planted("disabled-silently", DisabledSilently, "environment.disables"),
    planted("reads-environment", ReadsEnvironment, "environment.turns-nothing-on"),
)
"""The defects about surroundings, and those of scales and segments that came with them."""
