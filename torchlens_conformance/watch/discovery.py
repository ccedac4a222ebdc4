"""The discovery forward of tier M: what the watched modules give, with everything put back afterwards (TIER-1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..protocol.refusals import Refusal
from .activations import call_with
from .module_state import put_back
from .outputs import is_watchable, labelled
from .sites import ModuleSite


def discover(model: nn.Module, watched: Sequence[tuple[ModuleSite, nn.Module]], inputs: object) -> dict[str, list[str]]:
    """Run one forward under no_grad in the model's current mode; return the output leaves of every module that ran.

    Everything that :func:`everything_restored` names and the autograd mode are restored. Hooks of the caller's on the
    model do run.

    Args:
        model: The innermost module, so that no wrapper communicates or compiles.
        watched: The sites with their modules.
        inputs: See :func:`~torchlens_conformance.watch.activations.call_with`.

    Raises ``watch_discovery_failed`` when the model raises, or when none of the modules runs. Clause: TIER-1.
    """
    found: dict[str, list[str]] = {}
    with ExitStack() as stack:
        stack.enter_context(everything_restored(model))
        stack.enter_context(torch.no_grad())
        for site, module in watched:
            stack.callback(module.register_forward_hook(_note(found, site.leaf)).remove)
        try:
            call_with(model, inputs)
        except Exception as error:
            raise discovery_failed(error) from error
    if not found:
        raise Refusal(
            "watch_discovery_failed",
            "None of the selected modules ran in the discovery forward.",
            remedy="Select modules that are called; containers such as ModuleList are not.",
            modules=[site.leaf for site, _ in watched],
        )
    return found


def discovery_failed(error: Exception) -> Refusal:
    """Return the refusal for a model that raised on its example. Clause: TIER-1, TIER-2."""
    return Refusal(
        "watch_discovery_failed",
        f"The model raised {type(error).__name__} in the discovery forward: {error}",
        remedy="Give inputs= that the model takes: a tensor, a tuple of arguments, or a mapping of keywords. "
        "It runs under no_grad: a forward that calls torch.autograd.grad must do so inside torch.enable_grad().",
        error=type(error).__name__,
    )


def _note(found: dict[str, list[str]], leaf: str) -> Callable[[nn.Module, object, object], None]:
    def hook(module: nn.Module, args: object, output: object) -> None:
        del module, args
        leaves = found.setdefault(leaf, [])
        for label, part in labelled(output, leaf):
            if is_watchable(part) and label not in leaves:
                leaves.append(label)

    return hook


@contextmanager
def everything_restored(model: nn.Module) -> Iterator[None]:
    """Restore random states and what the modules hold at the end, whatever happens inside.

    See :class:`~torchlens_conformance.watch.module_state.ModuleState`. Raises ``watch_discovery_failed`` for a model
    with lazy parameters, whose first forward cannot be undone. Clause: TIER-1, TIER-2.
    """
    _require_values(model)
    with put_back(model):
        yield


def _require_values(model: nn.Module) -> None:
    lazy = [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if is_lazy(tensor)]
    if lazy:
        raise Refusal(
            "watch_discovery_failed",
            "The model has lazy parameters: a forward beside the training would fill them in its place.",
            remedy="Run one batch through the model before.",
            parameters=lazy,
        )
