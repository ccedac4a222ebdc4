"""Builds the graph from a recorded forward: from ours, or from a torchlens trace by its public attributes (GRAPH-1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..protocol import Refusal
from ..watch.operations import HOST_TIME, OperationTrace, TensorFacts
from .ir import GraphIR, GraphNode, Names, scope_of, scoped, upward

_KINDS = {"input": "Input", "parameter": "Parameter", "buffer": "Buffer", "outside": "Outside"}


def build_graph_ir(trace: Any) -> GraphIR:
    """Return the graph of a forward as it ran. Experimental.

    Args:
        trace: What :func:`~torchlens_conformance.watch.operations.record_forward` gave, or a ``torchlens.Trace``.

    Nothing is traced again: inputs in mappings, branches on data and loops are as they were in that run. A fact that
    the trace does not have is left out, never written as zero.

    Raises ``graph_trace_invalid`` for an object that is neither, and for a trace without operations.
    Clause: GRAPH-1.
    """
    if isinstance(trace, OperationTrace):
        return _from_ours(trace)
    if all(hasattr(trace, name) for name in ("layer_labels", "model_class_name")) and hasattr(trace, "__iter__"):
        return _from_torchlens(trace)
    raise Refusal(
        "graph_trace_invalid",
        f"An object of type {type(trace).__name__} is no recorded forward.",
        remedy="Pass what record_forward(model, *inputs) or torchlens.trace(model, inputs) returned.",
        type=type(trace).__name__,
    )


def _from_ours(trace: OperationTrace) -> GraphIR:
    names, nodes, timed = Names(), [], trace.trace_mode == "executed"
    for source in trace.sources:
        name = names.give(source.label, scope_of(source.label))
        nodes.append(GraphNode(name, _KINDS[source.kind], (), _attributes((source.facts,))))
    for operation in trace.operations:
        facts = _attributes(operation.outputs)
        if operation.module in trace.modules:
            facts["module"] = trace.modules[operation.module]
        if operation.writes:
            facts["writes"] = "in place"
        inputs = names.of(operation.inputs)
        name = names.give(operation.label, scoped(operation.module, operation.label))
        seconds = operation.seconds if timed else None
        nodes.append(GraphNode(name, operation.function, inputs, facts, seconds))
    if not trace.operations:
        raise _empty()
    ran = {above for operation in trace.operations for above in upward(operation.module)}
    for path in [path for path in trace.modules if path and path not in ran]:
        kind = trace.modules[path]
        nodes.append(GraphNode(names.give(f"module {path}", scoped(path, kind)), "Module", (), {"module": kind}))
    for parameter in trace.parameters or ():
        if parameter.label not in names:
            name = names.give(parameter.label, scope_of(parameter.label))
            nodes.append(GraphNode(name, "Parameter", (), {**_attributes((parameter.facts,)), "used": "no"}))
    mode = {"trace_mode": trace.trace_mode}
    nodes.append(GraphNode(names.give("output", "output"), "Output", names.of(trace.outputs), mode))
    evidence = HOST_TIME if timed else ""
    return GraphIR(tuple(nodes), evidence, trace.unseen, trace.trace_mode, _elements(trace))


def _elements(trace: OperationTrace) -> int | None:
    if trace.parameters is None:
        return None
    return sum(math.prod(parameter.facts.shape) for parameter in trace.parameters)


def _attributes(tensors: tuple[TensorFacts, ...]) -> dict[str, str]:
    if not tensors:
        return {}
    return {
        "shape": "; ".join("x".join(map(str, facts.shape)) or "scalar" for facts in tensors),
        "dtype": "; ".join(dict.fromkeys(facts.dtype for facts in tensors)),
        "device": "; ".join(dict.fromkeys(facts.device for facts in tensors)),
    }


def _from_torchlens(trace: Any) -> GraphIR:
    """Read the public attributes of a torchlens 2.36 trace; one that is missing leaves its fact out."""
    names, nodes, lost = Names(), [], []
    operations = list(trace)
    for operation in operations:
        label = _label_among_parents(operation)
        parents = [str(parent) for parent in getattr(operation, "parents", ()) or ()]
        unlisted = [parent for parent in parents if parent not in names]
        lost += [f"{label} takes from {parent}, which the trace does not list before it" for parent in unlisted]
        # A colon in a node's name would mean one of several outputs.
        name = names.give(label, scoped(_innermost(operation), label.replace(":", "_pass_")))
        inputs, facts = names.of(parents), dict(_torchlens_facts(operation))
        nodes.append(GraphNode(name, _kind(operation), inputs, facts, _seconds(operation)))
    if not nodes:
        raise _empty()
    timed = any(node.seconds is not None for node in nodes)
    return GraphIR(tuple(nodes), "host time as torchlens measured it" if timed else "", tuple(lost))


def _label_among_parents(operation: Any) -> str:
    """Return the label by which later operations name this one: with its pass where the layer has several."""
    several = (getattr(operation, "num_passes", 1) or 1) > 1
    return str(operation.label if several else operation.layer_label)


def _kind(operation: Any) -> str:
    for attribute, kind in (("is_input", "Input"), ("is_output", "Output"), ("is_buffer", "Buffer")):
        if getattr(operation, attribute, False):
            return kind
    return str(operation.func_name)


def _innermost(operation: Any) -> str:
    modules = getattr(operation, "modules", None) or ()
    return str(list(modules)[-1]).split(":")[0] if modules else ""


def _torchlens_facts(operation: Any) -> Iterator[tuple[str, str]]:
    shape, dtype = getattr(operation, "shape", None), getattr(operation, "dtype", None)
    if shape is not None:
        yield "shape", "x".join(map(str, shape)) or "scalar"
    if dtype is not None:
        yield "dtype", str(dtype).removeprefix("torch.")
    device = getattr(operation, "device_ref", None)
    if device is not None:
        yield "device", str(device)


def _seconds(operation: Any) -> float | None:
    duration = getattr(operation, "func_duration", None)
    try:
        seconds = float(duration) if duration is not None else 0.0
    except (TypeError, ValueError):
        return None
    # Inputs and outputs carry a zero that nobody measured.
    return seconds if seconds > 0 else None


def _empty() -> Refusal:
    return Refusal(
        "graph_trace_invalid",
        "The trace holds no operation.",
        remedy="Record a forward that runs functions of torch.",
        type="empty",
    )
