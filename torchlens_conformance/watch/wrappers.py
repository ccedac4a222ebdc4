"""Wrappers around a model, and names without them (TAG-6, ATTACH-8)."""

from __future__ import annotations

from torch import nn

_WRAPPED_AT = {"OptimizedModule": "_orig_mod", "DistributedDataParallel": "module", "DataParallel": "module"}
"""Classes that hold one module under a name that is no part of the model's own naming."""


def _wrapped_name(module: nn.Module) -> str | None:
    """Return the name under which ``module`` holds the module that it wraps, or None."""
    for kind in type(module).__mro__:
        name = _WRAPPED_AT.get(kind.__name__)
        if name is not None and kind.__module__.startswith("torch."):
            return name
    return None


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the innermost module under wrappers such as DistributedDataParallel and torch.compile."""
    while (name := _wrapped_name(model)) is not None:
        model = model.get_submodule(name)
    return model


def is_data_parallel(model: nn.Module) -> bool:
    """Return whether ``model`` is, at any wrapper, a DistributedDataParallel."""
    while True:
        if any(kind.__name__ == "DistributedDataParallel" for kind in type(model).__mro__):
            return True
        name = _wrapped_name(model)
        if name is None:
            return False
        model = model.get_submodule(name)


def is_compiled(model: nn.Module) -> bool:
    """Return whether ``model`` or a module in it was compiled by torch.compile."""
    return any(type(module).__name__ == "OptimizedModule" for module in model.modules())


def clean_name(model: nn.Module, raw: str) -> str:
    """Return a dotted name of a parameter or module without the components that wrappers add.

    Only a component that really is a wrapper's is taken out: a module of the user's called ``module`` stays.
    Clause: TAG-6.
    """
    kept = []
    here: nn.Module | None = model
    for component in raw.split(".") if raw else ():
        if here is None or _wrapped_name(here) != component:
            kept.append(component)
        # A scripted module holds its children in a mapping of its own kind, which has no get().
        here = here._modules[component] if here is not None and component in here._modules else None
    return ".".join(kept)
