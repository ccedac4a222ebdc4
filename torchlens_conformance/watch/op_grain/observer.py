"""Observes the chosen operations of the first forward of a sampled step (TIER-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ..activations import ForwardRecord, ModuleObserver, inside_backward
from ..operations.model import Operation
from ..operations.recorder import OperationRecorder
from ..sites import ROOT_LEAF
from .selection import OperationChoice
from .sites import OperationSite
from .wrap import Forward, ForwardWrap

FAMILY = "activations"


class OperationObserver(ModuleObserver):
    """Holds the record that is being filled, and stands in the forward's place exactly as long as there is one.

    Args:
        model: The innermost model.
        sites: The watched operations.
        choice: What was asked for, so that an operation under an unknown label can be named.

    Clause: TIER-3.
    """

    def __init__(self, model: nn.Module, sites: Iterable[OperationSite], choice: OperationChoice) -> None:
        self._wrap = ForwardWrap(model, self._around)
        self._entered: Callable[[], None] | None = None
        self._record: ForwardRecord | None = None
        self._model = model
        self._sites = {site.label: site for site in sites}
        self._functions = {function.name for function in choice.functions}
        super().__init__((FAMILY,))

    @property
    def record(self) -> ForwardRecord | None:
        """Filled while a sampled step runs, else None."""
        return self._record

    @record.setter
    def record(self, record: ForwardRecord | None) -> None:
        self._record = record
        if record is not None:
            self._wrap.install()
        elif self._entered is None:
            self._wrap.remove()

    def follow(self, entered: Callable[[], None]) -> None:
        """Stay in the forward's place, and say when one begins: under ``step=`` nothing else tells that a step does."""
        self._entered = entered
        self._wrap.install()

    def remove(self) -> None:
        """Leave the forward's place for good. Clause: CLOSE-3."""
        self._entered = None
        self._record = None
        self._wrap.remove()

    def _around(self, plain: Forward, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if inside_backward():
            return plain(*args, **kwargs)
        if self._entered is not None and torch.is_grad_enabled():
            self._entered()
        record = self._record
        if record is None or not record.open:
            return plain(*args, **kwargs)
        with ExitStack() as recording:
            try:
                if self._takes(record):
                    recorder = OperationRecorder(self._model, observe=self._observe, origins=False)
                    recording.enter_context(recorder.recording(args, kwargs))
            except Exception as error:  # Ours; the forward goes on without it.
                record.fail(error, "")
            return plain(*args, **kwargs)

    def _takes(self, record: ForwardRecord) -> bool:
        """Return whether this forward is observed; name why it is not."""
        if record.seen:
            record.report("forward_repeated", "", "")
            return False
        record.seen.add(ROOT_LEAF)
        record.blind = has_inference_path(self._model)
        if record.blind:
            record.report("forward_not_observable", "a module takes torch's fast path for inference", "")
        return not record.blind

    def _observe(self, operation: Operation, tensors: Sequence[Tensor]) -> None:
        record, site = self._record, self._sites.get(operation.label)
        if record is None or not record.open:
            return
        if site is None:
            if operation.function in self._functions and any(tensor.is_floating_point() for tensor in tensors):
                record.report("operation_unknown_label", "", operation.label)
            return
        record.seen.add(site.label)
        try:
            taken = [(leaf, tensor) for leaf, tensor in site.tensors(tensors) if tensor.is_floating_point()]
            parts = [(leaf, tensor) for leaf, whole in taken for leaf, tensor in _facets(site, leaf, whole, record)]
            record.take_all(FAMILY, [*taken, *parts])
        except Exception as error:
            record.fail(error, site.label)


def _facets(site: OperationSite, leaf: str, tensor: Tensor, record: ForwardRecord) -> list[tuple[str, Tensor]]:
    if site.split is None:
        return []
    if not site.split.fits(tensor.shape):
        record.report("facet_shape_changed", f"shape {tuple(tensor.shape)}", leaf)
        return []
    return [(f"{leaf}/{name}", part) for name, part in site.split.parts(tensor.detach())]


def has_inference_path(model: nn.Module) -> bool:
    """Return whether a module may take torch's fast path for inference now, which an observed forward would not."""
    return any(
        isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder))
        and not module.training
        and not (torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters()))
        for module in model.modules()
    )
