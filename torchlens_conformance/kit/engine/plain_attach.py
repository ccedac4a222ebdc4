"""What the plain engine refuses before it does anything, and what it holds at a boundary. Clause: ATTACH-1..6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...protocol import Refusal, advertised_capabilities, require_capabilities, require_safe_tag, scalar_tag
from .adapter import Ask
from .plain_surroundings import unwrapped

if TYPE_CHECKING:
    import torch

SIGNALS = ("gradients", "parameters", "updates", "activations", "activation_grads")
"""What the plain engine watches."""

_open_sessions: WeakKeyDictionary[Any, set[tuple[str | None, str | None]]] = WeakKeyDictionary()


class Held:
    """What was read at one boundary.

    Args:
        optimizer: The optimizer that steps.
        factor: The scale that is still in its gradients, or None.
        skipped: Whether it is about to leave its step out.
    """

    def __init__(self, optimizer: Any, factor: float | None, skipped: bool) -> None:
        self.optimizer, self.factor, self.skipped = optimizer, factor, skipped
        self.gradients: dict[str, torch.Tensor] = {}
        self.parameters: dict[str, torch.Tensor] = {}
        self.updates: dict[str, torch.Tensor] = {}
        self.evaluations = 0


def refusal(code: str, message: str, **fields: object) -> Refusal:
    """Return a refusal by its code. Clause: PROT-9."""
    return Refusal(code, message, remedy="See the specification.", **fields)


def require_attachable(
    model: torch.nn.Module, sinks: Sequence[Any], ask: Ask, optimizers: Sequence[Any]
) -> dict[str, torch.Tensor]:
    """Return the watched parameters by leaf, or refuse before any side effect. Clause: ATTACH-1..6."""
    import torch

    if not ask.signals or set(ask.signals) - set(SIGNALS):
        raise refusal("watch_signals_invalid", "The signals are empty or unknown.", signals=list(ask.signals))
    if len({id(sink) for sink in sinks}) != len(sinks):
        raise refusal("tracker_sink_duplicate", "One sink object is listed twice.")
    needed = ("scalar", "raw_histogram") if ask.hist_every is not None else ("scalar",)
    for sink in sinks:
        advertised_capabilities(sink)
        require_capabilities([(type(sink).__name__, sink)], needed)
    if (ask.name, ask.namespace) in _open_sessions.get(model, ()):
        raise refusal("tracker_namespace_collision", "An open session has this name.", name=ask.name)
    sparse = [module for module in model.modules() if getattr(module, "sparse", False)]
    if sparse and "gradients" in ask.signals:
        raise refusal("watch_sparse_grad_unsupported", "A gradient would be sparse.")
    if any(not isinstance(optimizer, torch.optim.Optimizer) for optimizer in optimizers):
        raise refusal("watch_optimizer_invalid", "The signals need an optimizer.")
    _require_explicit(ask)
    sites: dict[str, torch.Tensor] = {
        name: parameter for name, parameter in unwrapped(model).named_parameters() if taken(name, ask.select)
    }
    if not sites and not any(taken(name or "_root", ask.select) for name, _ in unwrapped(model).named_modules()):
        raise refusal(
            "watch_selector_matched_no_sites", "Nothing is selected.", census=[*dict(model.named_parameters())]
        )
    _require_budgets(ask, len(sites))
    for leaf in sites:
        for signal in ask.signals:
            require_safe_tag(scalar_tag(signal, "mean", leaf, name=ask.name, namespace=ask.namespace), site=leaf)
    _preflight(sinks, ask, sites)
    return sites


def _require_explicit(ask: Ask) -> None:
    if {"activations", "activation_grads"} & set(ask.signals) and (
        (ask.select is None and not ask.functions) or ask.inputs is None
    ):
        raise refusal("watch_tier_inputs_missing", "Outputs of modules need select= and inputs=.")


def taken(name: str, select: Sequence[str] | None) -> bool:
    """Say whether a prefix of whole components selects a name. Clause: TAG-6."""
    return select is None or any(name == prefix or name.startswith(f"{prefix}.") for prefix in select)


def _require_budgets(ask: Ask, sites: int) -> None:
    for budget, limit in (ask.budgets or {}).items():
        if type(limit) is not int or limit < 1:
            raise refusal("watch_budget_invalid", "A budget is a positive integer.", budget=budget)
        if budget == "max_sites" and sites > limit:
            raise refusal("watch_budget_exceeded", "There are more sites.", budget=budget, needed=sites)


def _preflight(sinks: Sequence[Any], ask: Ask, sites: dict[str, torch.Tensor]) -> None:
    from .plain_statistics import GRID

    tags = [
        scalar_tag(signal, "mean", leaf, name=ask.name, namespace=ask.namespace)
        for signal in ask.signals
        for leaf in sites
    ]
    for sink in sinks:
        if ask.hist_every is not None and hasattr(sink, "preflight_histograms"):
            sink.preflight_histograms(GRID)
        if hasattr(sink, "preflight_tags"):
            sink.preflight_tags(tags)


def register(model: torch.nn.Module, ask: Ask) -> None:
    """Note an open session. Clause: ATTACH-2."""
    _open_sessions.setdefault(model, set()).add((ask.name, ask.namespace))


def unregister(model: torch.nn.Module, ask: Ask) -> None:
    """Forget an open session."""
    _open_sessions.get(model, set()).discard((ask.name, ask.namespace))
