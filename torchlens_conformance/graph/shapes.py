"""A forward without computing: shapes, types and edges from tensors that have no values (GRAPH-1)."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..protocol import Refusal
from ..watch.module_state import put_back
from ..watch.operations import OperationRecorder, OperationTrace, record_forward
from ..watch.operations.recorder import plain_torch


def record_shapes(model: nn.Module, *args: Any, **kwargs: Any) -> OperationTrace:
    """Record what a forward of ``model`` would do, without computing and without memory for it. Experimental.

    The model's Python code runs, its tensors have no values. Where it needs one (``item``, ``nonzero``, a branch on
    data), the forward runs for real instead, under ``no_grad``. In every case what its modules hold and random states
    are put back, as :class:`~torchlens_conformance.watch.module_state.ModuleState` tells. Only a model with lazy
    parameters runs for real and is left as it is then, with its parameters. ``trace_mode`` of what is returned
    says which: ``fake``, ``executed``, or ``meta`` for a model on the meta device, which stays there. Code that asks
    whether its tensors have values may take another way without them.

    Args:
        model: Any module.
        args: Arguments of its forward; tensors on any device, which for a model on ``meta`` are moved there.
        kwargs: Keyword arguments of its forward.

    Times of a trace that was not executed say nothing: :func:`~torchlens_conformance.graph.build_graph_ir` leaves
    them out. Raises ``graph_values_needed`` when a model on ``meta`` needs a value; whatever the real forward
    raises is raised. Clause: GRAPH-1.
    """
    tensors = [*model.parameters(), *model.buffers()]
    if tensors and all(tensor.is_meta for tensor in tensors):
        return _on_meta(model, args, kwargs)
    if any(is_lazy(tensor) for tensor in tensors):
        return _told(record_forward(model, *args, **kwargs), "it has lazy parameters")
    try:
        return _fake(model, args, kwargs)
    except Exception as error:
        with put_back(model), torch.no_grad():
            trace = record_forward(model, *args, **kwargs)
        return _told(trace, f"without values it raised {type(error).__name__}")


def _told(trace: OperationTrace, why: str) -> OperationTrace:
    return replace(trace, unseen=(*trace.unseen, f"the forward ran for real, since {why}"))


def _on_meta(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OperationTrace:
    try:
        args, kwargs = _mapped((args, dict(kwargs)), lambda tensor: tensor.to("meta"))
        with torch.no_grad(), put_back(model):
            return replace(record_forward(model, *args, **kwargs), trace_mode="meta")
    except Exception as error:
        raise Refusal(
            "graph_values_needed",
            f"The model is on the meta device, and its forward raised {type(error).__name__} there: {error}",
            remedy="Give the model values, for example by to_empty(device=...), or take summarize_model(model) alone.",
            error=type(error).__name__,
        ) from error


def _fake(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OperationTrace:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    args, kwargs = _mapped((args, dict(kwargs)), mode.from_tensor)
    with put_back(model) as state, torch.no_grad(), plain_torch():
        # What takes real tensors alone runs for real, also under this mode: a change of a weight in place, say.
        state.stand_in(mode.from_tensor)
        recorder = OperationRecorder(model)
        with mode, recorder.recording(args, kwargs):
            returned = model(*args, **kwargs)
    trace = replace(recorder.trace(returned), trace_mode="fake")
    del returned
    return _with_what_stays(trace, recorder)


def _with_what_stays(trace: OperationTrace, recorder: OperationRecorder) -> OperationTrace:
    """Name tensors without values that the forward left where nothing is put back, in an object of its own say."""
    if recorder.held():
        gc.collect()
    held = recorder.held()
    told = f"tensors without values stay in objects that are no modules: what {', '.join(held)} made"
    return replace(trace, unseen=(*trace.unseen, told)) if held else trace


def _mapped(value: Any, change: Any) -> Any:
    """Return ``value`` with every tensor in it changed; tuples, lists, mappings and dataclasses are copied."""
    from torch.utils._pytree import tree_map

    def changed(part: Any) -> Any:
        if isinstance(part, Tensor):
            return change(part)
        if is_dataclass(part) and not isinstance(part, type):
            known = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
            return replace(part, **_mapped(known, change))
        return part

    return tree_map(changed, value)
