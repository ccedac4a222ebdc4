"""Outputs of modules in the plain engine: copies of what ordinary forward hooks see. Clause: TIER-1, TIER-4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from .plain_attach import taken

if TYPE_CHECKING:
    import torch

ROOT = "_root"
"""The leaf of the root module."""


class PlainModules:
    """Keeps the outputs of the selected modules, and the gradients of these, of one step.

    Args:
        model: The model, without wrappers.
        signals: What is watched.
        select: Prefixes of module names.
        scale: Returns the scale that gradients carry in a backward, or None.

    Attributes:
        values: Float64 copies by (family, leaf), one for each call.
        hooks: The handles.
        ratio: What observing costs, where that is measured at attach.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        signals: Sequence[str],
        select: Sequence[str] | None,
        scale: Callable[[], float | None],
    ) -> None:
        self.signals, self.scale = signals, scale
        self.values: dict[tuple[str, str], list[torch.Tensor]] = {}
        self.derived = False
        self.ratio: float | None = None
        self.hooks: list[Any] = []
        if {"activations", "activation_grads"} & set(signals):
            for name, module in model.named_modules():
                if self.is_taken(name or ROOT, select):
                    self.hooks.append(module.register_forward_hook(partial(self.see, name or ROOT)))

    def is_taken(self, leaf: str, select: Sequence[str] | None) -> bool:
        """Say whether a module is selected. Clause: TIER-1."""
        return taken(leaf, select)

    def begin(self, *, due: bool) -> None:
        """Take note that a step begins."""

    def clear(self) -> None:
        """Forget what earlier forwards gave."""
        self.values, self.derived = {}, False

    def see(self, leaf: str, module: Any, arguments: Any, output: Any) -> Any:
        """Keep one output, and ask for its gradient."""
        if "activations" in self.signals:
            self.keep("activations", leaf, output)
        if "activation_grads" in self.signals and output.requires_grad:
            output.register_hook(partial(self.see_gradient, leaf))

    def see_gradient(self, leaf: str, gradient: torch.Tensor) -> None:
        """Keep the gradient of one output, without the scale that every backward under a scaler carries."""
        self.derived |= self.scale() is not None
        self.keep("activation_grads", leaf, gradient, self.scale() or 1.0)

    def keep(self, family: str, leaf: str, tensor: torch.Tensor, scale: float = 1.0) -> None:
        """Keep a copy. Clause: STEP-6."""
        with self.unseen():
            self.values.setdefault((family, leaf), []).append(tensor.detach().double().flatten() / scale)

    def unseen(self) -> AbstractContextManager[Any]:
        """Return a context in which modes of the loop, such as the cache of a checkpoint, see no operation."""
        from torch.utils._python_dispatch import _disable_current_modes

        return _disable_current_modes()

    def merged(self) -> dict[tuple[str, str], torch.Tensor]:
        """Return the values of a step: all calls of a module together, so that a series has one point."""
        import torch

        return {key: torch.cat(values) for key, values in self.values.items()}
