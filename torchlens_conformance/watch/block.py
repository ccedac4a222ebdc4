"""What is known about one open step (STEP-7, STEP-11)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from .activations import ForwardRecord
from .amp import ScaleFact, ScalerView
from .boundary import SampledBoundary
from .schedule import Due

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

WITNESSES = 8
"""Gradients looked at on a step that is not sampled, so that close can tell whether they are still the same."""


class Basis:
    """Tells later whether gradients are still those of a boundary; costs the same for every model.

    Args:
        parameters: The parameters whose gradients could be asked for; some of them, evenly spread, are witnesses.

    Clause: STEP-4.
    """

    __slots__ = ("_witnesses", "whole")

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        stride = -(-len(parameters) // WITNESSES) or 1
        self.whole = stride == 1
        self._witnesses: list[tuple[torch.Tensor, ReferenceType[torch.Tensor] | None, int]] = []
        for parameter in parameters[::stride]:
            gradient = parameter.grad
            seen = (None, 0) if gradient is None else (ref(gradient), gradient._version)
            self._witnesses.append((parameter, *seen))

    def holds(self) -> bool:
        """Return whether every witness has the very gradient, unchanged, that it had."""
        for parameter, reference, version in self._witnesses:
            gradient = parameter.grad
            if reference is None:
                if gradient is not None:
                    return False
            elif gradient is None or reference() is not gradient or gradient._version != version:
                return False
        return True


@dataclass(slots=True)
class OptimizerBoundary:
    """One optimizer's step inside a block.

    Attributes:
        optimizer: The optimizer.
        found: What makes a fused optimizer leave its own step out, or None.
        fact: What is known about the loss scale; None on a step that is not sampled.
        sampled: The measurement, on a sampled step.
        owned: Ids of the optimizer's parameters, on a sampled step.
        basis: On a step that is not sampled, what close needs to take the gradients.
        complete: Whether the optimizer's step returned.
        nested: Whether the step called the step of a base class, whose hooks fired as well.
    """

    optimizer: Optimizer
    found: torch.Tensor | None = None
    fact: ScaleFact | None = None
    sampled: SampledBoundary | None = None
    owned: set[int] = field(default_factory=set)
    basis: Basis | None = None
    complete: bool = False
    nested: bool = False


@dataclass(slots=True)
class Block:
    """One open step.

    Attributes:
        due: What is due.
        view: The scaler, as far as it is seen.
        implicit: Whether ``step=`` opened it at a boundary.
        forward: What forwards gave, on a sampled step with module signals.
        boundaries: The optimizers that came to their boundary, by id, in order.
        skips: Skips that concern single leaves: leaves by (name, detail).
    """

    due: Due
    view: ScalerView
    implicit: bool
    forward: ForwardRecord | None = None
    boundaries: dict[int, OptimizerBoundary] = field(default_factory=dict)
    skips: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def report(self, name: str, detail: str, leaf: str) -> None:
        """Note a skip of one leaf."""
        leaves = self.skips.setdefault((name, detail), [])
        if leaf not in leaves:
            leaves.append(leaf)
