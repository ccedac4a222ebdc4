"""Defects of callbacks: each is the plain driver with one thing wrong, under both frameworks."""

from __future__ import annotations

from typing import Any

from ..plain_attach import Held
from ..plain_callbacks import PlainDriver
from ..plain_session import PlainSession
from .base import planted_callback


class MicroBatches(PlainDriver):
    """Counts batches, where several make a step."""

    parts = 0

    def part(self) -> None:
        """Count one more."""
        self.parts += 1

    def number(self, step: int, taken: int) -> int:
        """Go on by what was counted."""
        return step + self.parts


class OffByOne(PlainDriver):
    """Numbers a step as the next one."""

    def number(self, step: int, taken: int) -> int:
        """Add one."""
        return step + 1


class EvaluationRow(PlainDriver):
    """Sends rows for an evaluation."""

    def evaluated(self) -> None:
        """Send the last step once more, as the next one."""
        if self.session is not None and self.session.last is not None:
            self.session.emit_block(self.session.last + 1, self.session.boundaries)


class _Delayed(PlainSession):
    """Holds the rows of a step back until the next one ends."""

    waiting: tuple[int, list[Held]] | None = None

    def emit_block(self, step: int, boundaries: list[Held]) -> None:
        """Send what waited, and wait."""
        waiting, self.waiting = self.waiting, (step, boundaries)
        if waiting is not None:
            super().emit_block(*waiting)


class LosesEnd(PlainDriver):
    """Loses the row of the last step."""

    session_class = _Delayed


class AxisRestarts(PlainDriver):
    """Begins at the beginning when training is resumed."""

    def number(self, step: int, taken: int) -> int:
        """Forget what was counted before."""
        return step - self.counted


class SameSegment(PlainDriver):
    """Goes on in the old segment when training is resumed."""

    def new_segment(self) -> bool:
        """Never begin one."""
        return False


class StaysOpen(PlainDriver):
    """Leaves the session open when the loop raises."""

    def raised(self, error: BaseException) -> None:
        """Do nothing."""


class MasksError(PlainDriver):
    """Raises an error of its own when the loop raises."""

    def raised(self, error: BaseException) -> None:
        """Close, and raise."""
        super().raised(error)
        raise RuntimeError("the run was not closed by its end")


class _Gathered(PlainSession):
    """Holds all rows back until it is closed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.waiting: list[tuple[int, list[Held]]] = []

    def emit_block(self, step: int, boundaries: list[Held]) -> None:
        """Wait."""
        self.waiting.append((step, boundaries))

    def close(self) -> Any:
        """Send what waited."""
        waiting, self.waiting = self.waiting, []
        for step, boundaries in waiting:
            super().emit_block(step, boundaries)
        return super().close()


class SendsAtEnd(PlainDriver):
    """Sends its rows when training has ended well, and none when it raised."""

    session_class = _Gathered

    def raised(self, error: BaseException) -> None:
        """Forget what waited, and close."""
        if isinstance(self.session, _Gathered):
            self.session.waiting = []
        super().raised(error)


class _Unclipped(PlainSession):
    """Takes each gradient when it was accumulated, before it is clipped."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.accumulated: dict[int, Any] = {}
        parameters: list[Any] = list(self.sites.values())
        self.hooks += [parameter.register_post_accumulate_grad_hook(self.keep) for parameter in parameters]

    def keep(self, parameter: Any) -> None:
        """Keep what is there now."""
        self.accumulated[id(parameter)] = parameter.grad.detach().double().flatten().clone()

    def take_gradients(self, held: Held) -> None:
        """Take what was kept."""
        for leaf, parameter in self.sites_of(held.optimizer).items():
            held.gradients[leaf] = self.accumulated[id(parameter)]


class BeforeClipping(PlainDriver):
    """Tells gradients as they were before they were clipped."""

    session_class = _Unclipped


class IgnoresLogging(PlainDriver):
    """Takes the default cadence, whatever the framework logs."""

    def cadence(self, logging: int) -> int:
        """Return the default."""
        return 50


class EnvironmentWins(PlainDriver):
    """Takes a variable where an argument was given."""

    def settings(self, logging: int | None) -> dict[str, Any]:
        """Put variables over arguments."""
        return {**super().settings(logging), **self.variables()}


class TakesNonsense(PlainDriver):
    """Takes no notice of a malformed variable."""

    def read(self, variable: str, name: str, text: str) -> Any:
        """Return the value, or one."""
        return 1 if name == "every" and not text.isdigit() else super().read(variable, name, text)


class DrawsRandom(PlainDriver):
    """Draws a random number when it attaches."""

    def begin(self, *given: Any, **keywords: Any) -> None:
        """Draw one."""
        import torch

        torch.rand(1)
        super().begin(*given, **keywords)


class LeavesHook(PlainDriver):
    """Leaves a hook on the model when training has ended."""

    def begin(self, model: Any, *given: Any, **keywords: Any) -> None:
        """Set one more."""
        model.register_forward_hook(lambda *seen: None)
        super().begin(model, *given, **keywords)


class CountsOptimizers(PlainDriver):
    """Counts the steps of all optimizers, where loggers count batches."""

    def number(self, step: int, taken: int) -> int:
        """Return how often optimizers have stepped."""
        return taken


CALLBACK_DEFECTS = (
    planted_callback("callback-counts-batches", MicroBatches, "hf.axis", "lightning.axis"),
    planted_callback("callback-off-by-one", OffByOne, "hf.axis", "lightning.axis"),
    planted_callback("callback-evaluation-row", EvaluationRow, "hf.axis", "lightning.axis"),
    planted_callback("callback-loses-end", LosesEnd, "hf.axis", "lightning.axis"),
    planted_callback("callback-before-clipping", BeforeClipping, "hf.gradients", "lightning.gradients"),
    planted_callback("callback-draws", DrawsRandom, "hf.guest", "lightning.guest"),
    planted_callback("callback-leaves-hook", LeavesHook, "hf.guest", "lightning.guest"),
    planted_callback("callback-axis-restarts", AxisRestarts, "hf.resume", "lightning.resume"),
    planted_callback("callback-same-segment", SameSegment, "hf.resume", "lightning.resume"),
    planted_callback("callback-masks-error", MasksError, "hf.exception", "lightning.exception"),
    planted_callback("callback-sends-at-end", SendsAtEnd, "hf.exception", "lightning.exception"),
    planted_callback("callback-stays-open", StaysOpen, "hf.closed", "lightning.closed"),
    planted_callback("callback-ignores-logging", IgnoresLogging, "hf.cadence", "lightning.cadence"),
    planted_callback("callback-environment-wins", EnvironmentWins, "hf.settings", "lightning.settings"),
    planted_callback("callback-takes-nonsense", TakesNonsense, "hf.settings", "lightning.settings"),
    planted_callback("callback-counts-optimizers", CountsOptimizers, "lightning.optimizers"),
)
"""The defects of callbacks."""
