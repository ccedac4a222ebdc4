"""What a model consists of, as a table whose total is the number of its parameters, folded or not (GRAPH-1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from ..protocol import Refusal
from ..watch.operations import TRACE_MODES, OperationTrace
from ..watch.wrappers import clean_name, unwrapped
from .ir import upward
from .shapes import record_shapes


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One module, or several alike that stand beside each other.

    Attributes:
        path: Path of the first of them; empty for the root.
        depth: How deep it stands; 0 for the root.
        kind: Its class.
        times: How many modules the row stands for.
        own: Elements of the parameters that they hold themselves, and that no row before holds.
        shape: Shape of the last tensor that the first of them that ran made; None when that is not known.
        used: Whether one of them ran; None when no forward did.
    """

    path: str
    depth: int
    kind: str
    times: int
    own: int
    shape: tuple[int, ...] | None
    used: bool | None


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """The modules of a model.

    Attributes:
        rows: In the order of the model. Their ``own`` always add up to ``total``.
        total: Elements of all parameters, tied ones once: ``sum(p.numel() for p in model.parameters())``.
        trainable: Those of them that require gradients.
        lazy: Names of parameters that have no values yet, and count as nothing.
        trace_mode: Where shapes come from, one of :data:`~torchlens_conformance.watch.operations.TRACE_MODES`.
        notes: What was not seen, in sentences.
    """

    rows: tuple[SummaryRow, ...]
    total: int
    trainable: int
    lazy: tuple[str, ...]
    trace_mode: str
    notes: tuple[str, ...]

    def format(self) -> str:
        """Return the table for people."""
        lines = [f"{'module':<44} {'class':<28} {'made':<18} parameters"]
        for row in self.rows:
            name = "  " * row.depth + (row.path.rsplit(".", 1)[-1] or "the model")
            name += f" x{row.times}" if row.times > 1 else ""
            made = "not run" if row.used is False else "" if row.shape is None else "x".join(map(str, row.shape))
            lines.append(f"{name:<44} {row.kind:<28} {made:<18} {row.own}")
        lines.append(f"total {self.total}, trainable {self.trainable}")
        if self.lazy:
            lines.append(f"without values yet: {', '.join(self.lazy)}")
        lines.append(f"trace_mode {self.trace_mode}: {TRACE_MODES[self.trace_mode]}")
        return "\n".join([*lines, *self.notes])


def summarize_model(model: nn.Module, *args: Any, fold: bool = True, depth: int = -1, **kwargs: Any) -> ModelSummary:
    """Return the table of a model's modules; folding and depth change its rows, never its totals. Experimental.

    Args:
        model: Any module, also on the meta device.
        args: Arguments of its forward, as in :func:`~torchlens_conformance.graph.record_shapes`. Without arguments
            no forward runs, and there are no shapes.
        fold: Whether modules beside each other that are built alike make one row ``xN``.
        depth: How deep rows go; what lies deeper is counted in the row above it. -1 for all.
        kwargs: Keyword arguments of its forward.

    A tied weight counts in the first module that holds it; a module that stands in several places is one row. A model
    on ``meta`` whose forward needs a value gives the table without shapes, and a note. What the real forward raises is
    raised. Clause: GRAPH-1.
    """
    notes: tuple[str, ...] = ()
    trace = None
    if args or kwargs:
        try:
            trace = record_shapes(model, *args, **kwargs)
            notes = trace.unseen
        except Refusal as refusal:
            notes = (refusal.message,)
    rows = tuple(_Table(trace, fold=fold, depth=depth).rows({"": unwrapped(model)}, 0))
    parameters = list(model.parameters())
    valued = [parameter for parameter in parameters if not is_lazy(parameter)]
    return ModelSummary(
        rows,
        sum(parameter.numel() for parameter in valued),
        sum(parameter.numel() for parameter in valued if parameter.requires_grad),
        tuple(clean_name(model, path) for path, parameter in model.named_parameters() if is_lazy(parameter)),
        "structure" if trace is None else trace.trace_mode,
        notes,
    )


class _Table:
    """Walks a model once, and counts every parameter where it meets it first."""

    def __init__(self, trace: OperationTrace | None, *, fold: bool, depth: int) -> None:
        self._fold = fold
        self._depth = depth
        self._modules: set[int] = set()
        self._parameters: set[int] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._ran: set[str] | None = None
        if trace is not None:
            self._shapes, self._ran = _by_module(trace)

    def rows(self, alike: Mapping[str, nn.Module], level: int) -> Iterator[SummaryRow]:
        """Yield the row of modules that are built alike, by path, and the rows below."""
        self._modules.update(map(id, alike.values()))
        deepest = level == self._depth
        own = sum(self._count(parameter) for each in alike.values() for parameter in each.parameters(recurse=deepest))
        path, kind = next(iter(alike)), type(next(iter(alike.values()))).__name__
        used = None if self._ran is None else any(each in self._ran for each in alike)
        shape = next((self._shapes[each] for each in alike if each in self._shapes), None)
        yield SummaryRow(path, level, kind, len(alike), own, shape, used)
        for below in () if deepest else self._below(alike):
            yield from self.rows(below, level + 1)

    def _count(self, parameter: nn.Parameter) -> int:
        if id(parameter) in self._parameters or is_lazy(parameter):
            return 0
        self._parameters.add(id(parameter))
        return parameter.numel()

    def _below(self, alike: Mapping[str, nn.Module]) -> Iterator[dict[str, nn.Module]]:
        """Yield what makes one row each: the children in one place of every parent, and their like neighbours."""
        places = list(zip(*(_children(path, module) for path, module in alike.items())))
        kinds = [_built(place[0][1]) if self._fold else index for index, place in enumerate(places)]
        for _, indices in groupby(range(len(places)), key=kinds.__getitem__):
            members = {id(child): (path, child) for index in indices for path, child in places[index]}
            if fresh := dict(member for key, member in members.items() if key not in self._modules):
                yield fresh


def _children(path: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(f"{path}.{name}" if path else name, unwrapped(child)) for name, child in module.named_children()]


def _built(module: nn.Module, *parents: int) -> tuple[Any, ...]:
    """Return how a module is built: modules that give the same are alike."""
    own = tuple(
        (name, "lazy" if is_lazy(parameter) else tuple(parameter.shape), parameter.dtype, parameter.requires_grad)
        for name, parameter in module.named_parameters(recurse=False)
    )
    below = () if id(module) in parents else tuple(module.named_children())
    inner = tuple((name, _built(unwrapped(child), id(module), *parents)) for name, child in below)
    return (type(module), module.extra_repr(), own, inner)


def _by_module(trace: OperationTrace) -> tuple[dict[str, tuple[int, ...]], set[str]]:
    """Return, by path, the shape of the last tensor that a module made, and the paths of what ran."""
    shapes: dict[str, tuple[int, ...]] = {}
    for operation in trace.operations:
        if operation.outputs:
            shapes.update(dict.fromkeys(upward(operation.module), operation.outputs[0].shape))
    return shapes, {above for path in trace.modules for above in upward(path)}
