"""Defects about outputs of modules: each is the plain session with one thing wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....protocol import Point
from ..adapter import Ask
from ..plain_modules import ROOT, PlainModules
from ..plain_session import PlainSession
from ..plain_surroundings import unwrapped
from .base import planted


def _observed_by(kind: type[PlainModules], session: PlainSession, signals: Sequence[str]) -> PlainModules:
    return kind(unwrapped(session.model), signals, session.ask.select, lambda: session.scaler.backward_factor())


class _InputForOutput(PlainModules):
    def see(self, leaf: str, module: Any, arguments: Any, output: Any) -> Any:
        """Keep the input."""
        super().see(leaf, module, arguments, arguments[0])


class InputForOutput(PlainSession):
    """Takes what goes into a module for what comes out of it."""

    def observer(self, signals: Sequence[str]) -> PlainModules:
        """See inputs."""
        return _observed_by(_InputForOutput, self, signals)


class _LastCall(PlainModules):
    def keep(self, family: str, leaf: str, tensor: Any, scale: float = 1.0) -> None:
        """Forget the calls before."""
        self.values.pop((family, leaf), None)
        super().keep(family, leaf, tensor, scale)


class LastCall(PlainSession):
    """Keeps the last call of a module that runs twice, and does not say so."""

    def observer(self, signals: Sequence[str]) -> PlainModules:
        """See the last call."""
        return _observed_by(_LastCall, self, signals)


class CallsApart(PlainSession):
    """Sends the points of each call of a module under the same tag and step."""

    def emit_block(self, step: int, boundaries: Any) -> None:
        """Send the first call by itself."""
        for (family, leaf), calls in list(self.modules.values.items()):
            if len(calls) > 1:
                self.emit_site(family, leaf, calls.pop(0), step)
        super().emit_block(step, boundaries)


class _Scaled(PlainModules):
    def keep(self, family: str, leaf: str, tensor: Any, scale: float = 1.0) -> None:
        """Leave the scale in."""
        super().keep(family, leaf, tensor)


class ScaledOutputGradients(PlainSession):
    """Leaves the loss scale in the gradients of outputs."""

    def observer(self, signals: Sequence[str]) -> PlainModules:
        """See scaled gradients."""
        return _observed_by(_Scaled, self, signals)


class _Rounds(PlainModules):
    def see(self, leaf: str, module: Any, arguments: Any, output: Any) -> Any:
        """Return another tensor."""
        super().see(leaf, module, arguments, output)
        return output.half().to(output.dtype)


class RoundsOutput(PlainSession):
    """Gives the next module a rounded copy of the output that it watches."""

    def observer(self, signals: Sequence[str]) -> PlainModules:
        """See, and change."""
        return _observed_by(_Rounds, self, signals)


class ForwardAtAttach(PlainSession):
    """Runs a forward at attach, and puts nothing back that it changes."""

    def __init__(self, model: Any, sinks: Any, ask: Ask) -> None:
        super().__init__(model, sinks, ask)
        if ask.inputs is not None:
            model(ask.inputs)
            self.modules.clear()


class FilledBufferStays(PlainSession):
    """Runs a forward at attach, and puts back random states and all buffers but those that were None."""

    def __init__(self, model: Any, sinks: Any, ask: Ask) -> None:
        super().__init__(model, sinks, ask)
        if ask.inputs is not None:
            import torch

            before = {name: buffer.clone() for name, buffer in model.named_buffers()}
            with torch.random.fork_rng(), torch.no_grad():
                model(ask.inputs)
                for name, buffer in model.named_buffers():
                    buffer.copy_(before.get(name, buffer))
            self.modules.clear()


class ForgetsForward(PlainSession):
    """Forgets under ``step=`` what the forward gave before the block opened."""

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Begin with nothing."""
        super().enter(n, scaler, new_segment)
        self.modules.clear()


class _RootByClass(PlainModules):
    def see(self, leaf: str, module: Any, arguments: Any, output: Any) -> Any:
        """Name the root otherwise."""
        super().see(type(module).__name__ if leaf == ROOT else leaf, module, arguments, output)


class RootByClass(PlainSession):
    """Names the output of the model itself by its class."""

    def observer(self, signals: Sequence[str]) -> PlainModules:
        """See it under another leaf."""
        return _observed_by(_RootByClass, self, signals)


class AllModules(PlainSession):
    """Watches every module when none is selected."""

    def __init__(self, model: Any, sinks: Any, ask: Ask) -> None:
        if "activations" in ask.signals:
            everything = tuple(name for name, _ in model.named_children())
            inputs = 0 if ask.inputs is None else ask.inputs
            ask = replace(ask, select=ask.select or everything, inputs=inputs)
        super().__init__(model, sinks, ask)


class EmptyModules(PlainSession):
    """Sets its hooks on modules, and sends no row of what they see."""

    def emit(self, point: Point, *, data: bool = False) -> None:
        """Drop rows of outputs."""
        if not getattr(point, "tag", "").startswith("activations/"):
            super().emit(point, data=data)


MODULE_DEFECTS = (
    planted("input-for-output", InputForOutput, "module.values"),
    planted("root-by-class", RootByClass, "module.root"),
    planted("last-call", LastCall, "module.shared"),
    planted("calls-apart", CallsApart, "module.shared"),
    planted("scaled-output-gradients", ScaledOutputGradients, "module.gradients"),
    planted("rounds-output", RoundsOutput, "module.forward-kept"),
    planted("forward-at-attach", ForwardAtAttach, "module.forward-kept"),
    planted("filled-buffer-stays", FilledBufferStays, "module.forward-kept"),
    planted("forgets-forward", ForgetsForward, "module.spellings"),
    planted("all-modules", AllModules, "module.explicit"),
    planted("empty-modules", EmptyModules, "guest.modules", "module.values"),
)
"""The defects about outputs of modules."""
