"""Which optimizers a session watches: those it was given, or those that turn out to hold its parameters (STEP-11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch.optim import Optimizer as TorchOptimizer

from ..protocol.refusals import Refusal
from .boundary import holds_any

if TYPE_CHECKING:
    from torch.optim import Optimizer


def require_optimizers(optimizer: object) -> list[Optimizer] | None:
    """Return the optimizers as a list without repetition, or refuse ``watch_optimizer_invalid``; None stays None.

    An object that wraps an optimizer under the name ``optimizer`` stands for it. Clause: STEP-11.
    """
    if optimizer is None:
        return None
    given = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    found = [_innermost(each) for each in given]
    if not found:
        raise _refuse([], "The list of optimizers is empty.")
    return list({id(each): each for each in found}.values())


def _innermost(given: object) -> Optimizer:
    inner = given
    while isinstance(getattr(inner, "optimizer", None), TorchOptimizer):
        inner = inner.optimizer  # type: ignore[attr-defined]
    if not isinstance(inner, TorchOptimizer):
        raise _refuse([type(given).__name__], "What was given as optimizer is no torch.optim.Optimizer.")
    return inner


def _refuse(kinds: list[str], message: str) -> Refusal:
    return Refusal(
        "watch_optimizer_invalid",
        message,
        remedy="Give the torch optimizer, or a list of them, that updates the watched model.",
        optimizers=kinds,
    )


class Owners:
    """The optimizers of a session.

    Args:
        given: The optimizers of ``optimizer=``; None to take every one that updates a watched parameter.
        parameters: Returns the watched parameters by id, as the model holds them now.

    Raises ``watch_optimizer_invalid`` when a given one holds none of the watched parameters. Clause: STEP-11.
    """

    def __init__(self, given: list[Optimizer] | None, parameters: Callable[[], dict[int, object]]) -> None:
        self.discovers = given is None
        self._parameters = parameters
        self._given = given or []
        self._answers: WeakKeyDictionary[Optimizer, tuple[int, bool]] = WeakKeyDictionary()
        watched = parameters()
        for optimizer in self._given:
            if watched and not holds_any(optimizer, watched):
                raise _refuse([type(optimizer).__name__], "The optimizer holds none of the watched parameters.")

    def all(self) -> list[Optimizer]:
        """Return the optimizers known so far."""
        if not self.discovers:
            return self._given
        return [optimizer for optimizer, (_, ours) in self._answers.items() if ours]

    def takes(self, optimizer: Optimizer) -> bool:
        """Return whether ``optimizer`` is one of ours; a parameter group added later is looked at again."""
        if not self.discovers:
            return True
        groups = len(optimizer.param_groups)
        known = self._answers.get(optimizer)
        if known is None or (known[0] != groups and not known[1]):
            known = self._answers[optimizer] = (groups, holds_any(optimizer, self._parameters()))
        return known[1]

    def is_new(self, optimizer: Optimizer) -> bool:
        """Return whether a discovered optimizer has not been met before."""
        return self.discovers and optimizer not in self._answers

    def labels(self) -> dict[int, str]:
        """Return a name for every optimizer, by id: its class, with ``#2`` and so on."""
        return label_all(self.all())


def label_all(optimizers: Iterable[Optimizer]) -> dict[int, str]:
    """Return class names, with ``#2`` and so on for further optimizers of one class, by id."""
    counts: Counter[str] = Counter()
    labels = {}
    for optimizer in optimizers:
        kind = type(optimizer).__name__
        counts[kind] += 1
        labels[id(optimizer)] = kind if counts[kind] == 1 else f"{kind}#{counts[kind]}"
    return labels
