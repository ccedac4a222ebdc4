"""One forward beside the training, after which everything is as it was (CB-3, CB-4)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import nn

from ..watch.discovery import everything_restored

InputGetter: TypeAlias = Callable[[Any], Any]
"""Takes a batch and returns what the forward takes: a tensor, a tuple of arguments, or a mapping of keywords."""


class CallbackWarning(UserWarning):
    """A callback left something out, or gave nothing, and training goes on.

    Attributes:
        code: ``lightning_profile_skipped``, ``lightning_summary_skipped`` or ``watch_close_empty``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def warn(code: str, message: str) -> None:
    """Warn by code, with the caller's caller as the place."""
    warnings.warn(CallbackWarning(code, message), stacklevel=3)


def forward_inputs(batch: Any, input_getter: InputGetter | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and keywords with which a batch goes through the forward.

    Without ``input_getter``: of ``(x, ...)`` the first, of ``{"x": ...}`` the ``x``, of another mapping its items as
    keywords, and a batch that is none of these as it is. Clause: CB-4.
    """
    if input_getter is not None:
        chosen = input_getter(batch)
        if isinstance(chosen, tuple):
            return chosen, {}
        return ((), dict(chosen)) if isinstance(chosen, Mapping) else ((chosen,), {})
    if isinstance(batch, (tuple, list)) and batch:
        return (batch[0],), {}
    if isinstance(batch, Mapping):
        return ((batch["x"],), {}) if set(batch) == {"x"} else ((), dict(batch))
    return (batch,), {}


@contextmanager
def beside_training(module: nn.Module) -> Iterator[None]:
    """Run what is inside in eval mode under ``no_grad``, and put back modes, random states and what the modules hold.

    Clause: CB-4.
    """
    modes = [(part, part.training) for part in module.modules()]
    try:
        with everything_restored(module), torch.no_grad():
            module.eval()
            yield
    finally:
        for part, training in modes:
            part.training = training
