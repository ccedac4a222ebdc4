"""Tier M: outputs of modules and their gradients, observed by ordinary hooks on sampled steps (TIER-1, TIER-4)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import nn

from ..protocol.grid import GridDescriptor
from .measure import Key, Measurements, Request
from .outputs import is_watchable, labelled
from .own_forwards import is_own_forward
from .schedule import Due
from .sites import ModuleSite
from .unscale import scale_exponent
from .unseen import unseen

Inert = Callable[..., object]
"""What becomes of our hooks in a copy of the model: something that does nothing and needs none of our code."""


def _inert() -> Inert:
    return contextlib.nullcontext().__exit__


@dataclass(frozen=True, slots=True)
class Taken:
    """Outputs that are being measured, and the keys of those that have statistics."""

    measurements: Measurements
    keys: list[Key]


class ForwardRecord:
    """What the forwards, and the backwards, of one sampled step gave.

    Several calls of a module in one step are merged: counts say how many elements all of them had.

    Args:
        due: The step, and whether histograms are due.
        descriptor: The grid of the session's histograms.
        leaves: The leaves that have names; None takes any.
        scale: The loss scale that gradients carry during backward, or None when nothing is known.

    Attributes:
        measurements: What was started; fetched when the step is over.
        calls: How many outputs are merged, by family and leaf.
        seen: Leaves of the modules, or labels of the operations, that ran; empty when there was no forward.
        blind: Whether a forward came that could not be observed.
        problems: (skip, detail, leaf) of what could not be taken.
    """

    def __init__(
        self, due: Due, descriptor: GridDescriptor, *, leaves: frozenset[str], scale: float | None = None
    ) -> None:
        self.due = due
        self._descriptor = descriptor if due.histograms else None
        self._leaves = leaves
        exponent = None if scale is None else scale_exponent(scale)
        self._exponent = exponent or 0
        self._handles: list[Any] = []
        self.open = True
        self.measurements = Measurements(self.report)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.seen: set[str] = set()
        self.blind = False
        self.problems: dict[tuple[str, str, str], None] = {}

    def close(self) -> None:
        """Take nothing more, and remove the hooks that wait for gradients."""
        self.open = False
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def observe(self, site: ModuleSite, output: object, families: Sequence[str]) -> None:
        """Take one output of a module."""
        self.seen.add(site.leaf)
        parts = list(labelled(output, site.leaf))
        if not parts:
            self.report("activation_not_floating", f"{_kind(output)} without a tensor", site.leaf)
        for leaf, part in parts:
            if not is_watchable(part):
                self.report("activation_not_floating", _kind(part), leaf)
            elif leaf not in self._leaves:
                self.report("activation_unknown_leaf", "", leaf)
            else:
                assert isinstance(part, torch.Tensor)
                self._observe_tensor(leaf, part, families)

    def take(self, family: str, leaf: str, tensor: torch.Tensor) -> None:
        """Start to measure one tensor, which is merged into its leaf; a device is not waited for."""
        self.take_all(family, [(leaf, tensor)])

    def take_all(self, family: str, tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Start to measure several tensors together, each under its leaf."""
        self.keep(self.start(family, tensors))

    def start(self, family: str, tensors: Sequence[tuple[str, torch.Tensor]]) -> Taken:
        """Start to measure several tensors together, of which :meth:`keep` decides whether they count."""
        exponent = self._exponent if family == "activation_grads" else 0
        with unseen(), torch.no_grad():
            requests = [Request(family, leaf, tensor.detach(), self._descriptor, exponent) for leaf, tensor in tensors]
            measurements = Measurements(self.report)
            return Taken(measurements, measurements.add(requests))

    def keep(self, taken: Taken) -> None:
        """Merge what was started into its leaves."""
        self.measurements.absorb(taken.measurements)
        self.calls.update(taken.keys)

    def fail(self, error: Exception, leaf: str) -> None:
        """Note an error of ours; it never reaches the model."""
        self.report("collection_failed", f"{type(error).__name__}: {error}", leaf)

    def _observe_tensor(self, leaf: str, tensor: torch.Tensor, families: Sequence[str]) -> None:
        if "activations" in families:
            self.take("activations", leaf, tensor)
        if "activation_grads" in families and tensor.requires_grad:
            # A hook on the tensor, not a backward hook on the module: the latter breaks in-place operations behind it.
            hook = _GradientHook(self, leaf)
            self._handles.append(tensor.register_hook(hook))  # type: ignore[no-untyped-call]

    def report(self, name: str, detail: str, leaf: str) -> None:
        """Note what could not be taken."""
        self.problems[name, detail, leaf] = None


def _kind(part: object) -> str:
    return str(part.dtype) if isinstance(part, torch.Tensor) else type(part).__name__


class _GradientHook:
    """Waits for the gradient of one output; does nothing once its step is over."""

    def __init__(self, record: ForwardRecord, leaf: str) -> None:
        self._record = record
        self._leaf = leaf

    def __call__(self, gradient: torch.Tensor) -> None:
        if not self._record.open:
            return
        try:
            self._record.take("activation_grads", self._leaf, gradient)
        except Exception as error:
            self._record.fail(error, self._leaf)


class ModuleObserver:
    """Holds the record that is being filled, for the hooks on modules.

    Args:
        families: ``activations``, ``activation_grads`` or both.

    Attributes:
        record: Filled while a sampled step runs, else None.
    """

    def __init__(self, families: tuple[str, ...]) -> None:
        self.families = families
        self.record: ForwardRecord | None = None


class OutputHook:
    """The forward hook of one watched module; in a copied or pickled model it becomes inert.

    Args:
        observer: Whose record is filled; held weakly, so that a session can be collected.
        site: The module.
    """

    def __init__(self, observer: ModuleObserver, site: ModuleSite) -> None:
        self._observer: ReferenceType[ModuleObserver] = ref(observer)
        self._site = site

    def __call__(self, module: nn.Module, args: object, output: object) -> None:
        """Observe the output, unless nothing is due, the backward recomputes a forward, or the forward is ours."""
        del args
        observer = self._observer()
        record = None if observer is None else observer.record
        if observer is None or record is None or inside_backward() or is_own_forward(module):
            return
        try:
            # What is done here is no operation of the forward, should somebody record or count it.
            with unseen():
                record.observe(self._site, output, observer.families)
        except Exception as error:
            record.fail(error, self._site.leaf)

    def __deepcopy__(self, memo: object) -> Inert:
        return _inert()

    def __reduce__(self) -> tuple[object, ...]:
        return (getattr, (contextlib.nullcontext(), "__exit__"))


class ForwardEntryHook:
    """The root's forward pre-hook under ``step=``; in a copied or pickled model it becomes inert. Clause: STEP-6."""

    def __init__(self, entered: Callable[[], None]) -> None:
        self._entered = entered

    def __call__(self, module: nn.Module, args: object) -> None:
        """Tell the session that a forward begins; validation under no_grad is none of a training step, nor is ours."""
        del args
        if torch.is_grad_enabled() and not inside_backward() and not is_own_forward(module):
            self._entered()

    def __deepcopy__(self, memo: object) -> Inert:
        return _inert()

    def __reduce__(self) -> tuple[object, ...]:
        return (getattr, (contextlib.nullcontext(), "__exit__"))


def inside_backward() -> bool:
    """Return whether this thread runs a backward: activation checkpointing calls modules again there."""
    return torch._C._current_graph_task_id() != -1


def call_with(model: nn.Module, inputs: object) -> object:
    """Call ``model`` with an example: a mapping by keyword, a tuple or list by position, anything else alone."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)
