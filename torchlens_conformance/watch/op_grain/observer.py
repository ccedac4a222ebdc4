"""Observes the chosen operations of the first forward of a sampled step (TIER-3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from ..activations import ForwardRecord, ModuleObserver, inside_backward
from ..operations.recorder import OperationRecorder
from ..own_forwards import is_own_forward
from ..sites import ROOT_LEAF
from .calls import FAMILY, Calls, ObservedForward
from .selection import OperationChoice
from .wrap import Forward, ForwardWrap


class OperationObserver(ModuleObserver):
    """Holds the record that is being filled, and stands in the forward's place exactly as long as there is one.

    Args:
        model: The innermost model.
        calls: The calls of the watched functions in discovery.
        choice: What was asked for, so that a call that has no series can be named.
        in_own_forwards: Whether forwards that we run ourselves are observed, and not those of the training.

    Clause: TIER-3.
    """

    def __init__(
        self, model: nn.Module, calls: Calls, choice: OperationChoice, *, in_own_forwards: bool = False
    ) -> None:
        self._wrap = ForwardWrap(model, self._around)
        self._entered: Callable[[], None] | None = None
        self._record: ForwardRecord | None = None
        self._model = model
        self._calls = calls
        self._chosen = frozenset(function.name for function in choice.functions)
        self._in_own_forwards = in_own_forwards
        self._observing: int | None = None
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
        if inside_backward() or is_own_forward(self._model) is not self._in_own_forwards:
            return plain(*args, **kwargs)
        if self._observing == threading.get_ident():  # A forward that calls itself is one forward.
            return plain(*args, **kwargs)
        if self._entered is not None and torch.is_grad_enabled():
            self._entered()
        record = self._record
        if record is None or not record.open:
            return plain(*args, **kwargs)
        with ExitStack() as recording:
            try:
                if self._takes(record):
                    self._observe(record, recording, args, kwargs)
            except Exception as error:  # Ours; the forward goes on without it.
                record.fail(error, "")
            return plain(*args, **kwargs)

    def _observe(
        self, record: ForwardRecord, recording: ExitStack, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        forward = ObservedForward(self._model, self._calls, self._chosen, record)
        recorder = OperationRecorder(self._model, observe=forward.see, origins=False)
        recording.callback(forward.settle)
        recording.enter_context(recorder.recording(args, kwargs))
        recording.callback(setattr, self, "_observing", None)
        self._observing = threading.get_ident()

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


def has_inference_path(model: nn.Module) -> bool:
    """Return whether a module may take torch's fast path for inference now, which an observed forward would not."""
    return any(
        isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder))
        and not module.training
        and not (torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters()))
        for module in model.modules()
    )
