"""Every hook of a session, installed in one place and removed in one place (CLOSE-3, ATTACH-6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod, ref

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .activations import ForwardEntryHook, OutputHook
from .boundary import Arguments
from .op_grain.observer import OperationObserver
from .unseen import unseen

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from .engine import Engine


class HookSet:
    """The handles of a session's hooks; removing them again does nothing."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def __len__(self) -> int:
        return len(self._handles)

    def keep(self, handle: Any) -> None:
        """Take over a handle."""
        self._handles.append(handle)

    def remove(self) -> None:
        """Remove every hook. Clause: CLOSE-3."""
        while self._handles:
            self._handles.pop().remove()


def install(engine: Engine, hooks: HookSet, *, boundaries: bool, entry: bool) -> None:
    """Install what the session needs.

    Args:
        engine: Told by the hooks, which hold it weakly.
        hooks: Takes the handles; whatever was installed before an error is in it.
        boundaries: Whether optimizer boundaries are watched.
        entry: Whether the root's forward entry is watched; only ``step=`` with activations needs it (STEP-6).
    """
    if boundaries:
        _install_boundaries(engine, hooks)
    model = engine.watched.model
    if isinstance(engine.observer, OperationObserver):
        hooks.keep(engine.observer)
        if entry:
            engine.observer.follow(_weakly(engine.forward_entered))
    elif entry:
        hooks.keep(model.register_forward_pre_hook(ForwardEntryHook(_weakly(engine.forward_entered))))
    for site in engine.watched.modules:
        hooks.keep(_module(model, site.path).register_forward_hook(OutputHook(engine.observer, site)))


def _module(model: nn.Module, path: str) -> nn.Module:
    return model.get_submodule(path) if path else model


def _install_boundaries(engine: Engine, hooks: HookSet) -> None:
    reference = ref(engine)

    def before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        alive = reference()
        if alive is None:
            return None
        with unseen():
            return alive.before(optimizer, args, kwargs)

    def after(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del args, kwargs
        alive = reference()
        if alive is not None:
            with unseen():
                alive.after(optimizer)

    if engine.owners.discovers:
        hooks.keep(register_optimizer_step_pre_hook(before))
        hooks.keep(register_optimizer_step_post_hook(after))
    for optimizer in engine.owners.all():
        hooks.keep(optimizer.register_step_pre_hook(before))
        hooks.keep(optimizer.register_step_post_hook(after))


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    reference = WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call
