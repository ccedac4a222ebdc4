"""Scenarios about attach: everything that has to be refused before any hook is set and any point is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ....protocol import Refusal
from ..adapter import Engine
from ..observation import ACKNOWLEDGED, Observed
from ..recording import RecordingSink
from .case import Case, chosen_gradients, hook_census

if TYPE_CHECKING:
    import torch


class _CapSink(RecordingSink):
    """Refuses the grid when it is asked before attach."""

    def preflight_histograms(self, descriptor: Any) -> None:
        """Refuse every grid. Clause: ATTACH-4."""
        raise Refusal("tracker_histogram_bucket_cap", "Too many buckets.", remedy="Use fewer buckets.")


class _TagSink(RecordingSink):
    """Refuses tags when it is asked before attach."""

    def preflight_tags(self, tags: Any) -> None:
        """Refuse every tag. Clause: PROT-7."""
        raise Refusal("tracker_tag_unsafe", "The store cannot carry a tag.", remedy="Use other names.")


class _NoSink:
    """Not a sink: it has no ``capabilities()``."""


def _ordinary() -> torch.nn.Module:
    import torch

    return chosen_gradients({"h.weight": torch.ones(2), "h.bias": torch.ones(1)})


def _sparse() -> torch.nn.Module:
    import torch

    return torch.nn.Embedding(4, 2, sparse=True)


def _unsafe() -> torch.nn.Module:
    import torch

    return torch.nn.ModuleDict({"what?": torch.nn.Linear(2, 1)})


_CASES: dict[str, tuple[str, dict[str, Any], Callable[[], Any]]] = {
    "no-signals": ("watch_signals_invalid", {"signals": ()}, _ordinary),
    "unknown-signal": ("watch_signals_invalid", {"signals": ("gradient",)}, _ordinary),
    "selects-nothing": ("watch_selector_matched_no_sites", {"select": ("elsewhere",)}, _ordinary),
    "budget-exceeded": ("watch_budget_exceeded", {"budgets": {"max_sites": 1}}, _ordinary),
    "budget-invalid": ("watch_budget_invalid", {"budgets": {"max_sites": -1}}, _ordinary),
    "sparse": ("watch_sparse_grad_unsupported", {}, _sparse),
    "unsafe-tag": ("tracker_tag_unsafe", {}, _unsafe),
    "same-sink-twice": ("tracker_sink_duplicate", {}, _ordinary),
    "no-sink": ("tracker_sink_invalid", {}, _ordinary),
    "unknown-word": ("tracker_sink_invalid", {}, _ordinary),
    "no-histograms": ("tracker_sink_capability_missing", {"hist_every": 1}, _ordinary),
    "grid-preflight": ("tracker_histogram_bucket_cap", {"hist_every": 1}, _ordinary),
    "tag-preflight": ("tracker_tag_unsafe", {}, _ordinary),
    "second-session": ("tracker_namespace_collision", {}, _ordinary),
}


def _sinks(name: str, case: Case) -> tuple[Any, ...]:
    plain = case.sink("first")
    if name == "same-sink-twice":
        return plain, plain
    if name == "no-sink":
        return plain, _NoSink()
    if name == "unknown-word":
        return plain, case.sink("second", words=("scalar", "smell"))
    if name == "no-histograms":
        return plain, case.sink("second", words=("scalar", "text_manifest"))
    special = {"grid-preflight": _CapSink, "tag-preflight": _TagSink}.get(name)
    if special is not None:
        case.sinks["second"] = special(case.clock, case.engine.spellings)
        return plain, case.sinks["second"]
    return (plain,)


def refusals(engine: Engine) -> Iterator[Observed]:
    """Each attach that has to be refused, and then one that has to work on the same model."""
    import torch

    for name, (code, ask, make) in _CASES.items():
        case = Case(engine, f"refusals/{name}")
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sinks = _sinks(name, case)
        other = None
        if name == "second-session":
            other = Case(engine, "refusals/holder")
            other.attach(model, optimizer=optimizer)
        before = hook_census(model, [optimizer])
        case.attach(model, sinks, optimizer=optimizer, **ask)
        after = hook_census(model, [optimizer])
        attached = case.log.events[0].outcome == ACKNOWLEDGED
        again = True
        if attached:
            case.close()
        if other is not None:
            other.close()
        elif not attached and name not in ("sparse", "unsafe-tag"):
            again = _attaches_again(engine, model, optimizer)
        yield case.observed(code=code, before=before, after=after, again=again, meant_to_refuse=True)


def _attaches_again(engine: Engine, model: Any, optimizer: Any) -> bool:
    case = Case(engine, "refusals/again")
    case.attach(model, optimizer=optimizer)
    if case.session is None:
        return False
    with case.step(1):
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
    case.close()
    return all(event.outcome == ACKNOWLEDGED for event in case.log.events)
