"""Builds the graph from a recorded forward: from ours, or from a torchlens trace by its public attributes (GRAPH-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..protocol import Refusal
from ..watch.operations import HOST_TIME, OperationTrace, TensorFacts
from .ir import GraphIR, GraphNode, Names, scoped

_KINDS = {"input": "Input", "parameter": "Parameter", "buffer": "Buffer", "outside": "Outside"}


def build_graph_ir(trace: Any) -> GraphIR:
    """Return the graph of a forward as it ran.

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
    names, nodes = Names(), []
    for source in trace.sources:
        name = names.give(source.label, source.label.replace(".", "/"))
        nodes.append(GraphNode(name, _KINDS[source.kind], (), _attributes((source.facts,))))
    for operation in trace.operations:
        facts = _attributes(operation.outputs)
        if operation.module in trace.modules:
            facts["module"] = trace.modules[operation.module]
        if operation.writes:
            facts["writes"] = "in place"
        inputs = names.of(operation.inputs)
        name = names.give(operation.label, scoped(operation.module, operation.label))
        nodes.append(GraphNode(name, operation.function, inputs, facts, operation.seconds))
    if not trace.operations:
        raise _empty()
    nodes.append(GraphNode(names.give("output", "output"), "Output", names.of(trace.outputs), {}))
    return GraphIR(tuple(nodes), HOST_TIME, trace.unseen)


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
    names, nodes = Names(), []
    operations = list(trace)
    for operation in operations:
        label = str(operation.layer_label)
        module = _innermost(operation)
        inputs = names.of(map(str, getattr(operation, "parents", ()) or ()))
        op = "Input" if getattr(operation, "is_input", False) else str(operation.func_name)
        op = "Output" if getattr(operation, "is_output", False) else op
        name = names.give(label, scoped(module, label))
        nodes.append(GraphNode(name, op, inputs, dict(_torchlens_facts(operation)), _seconds(operation)))
    if not nodes:
        raise _empty()
    timed = any(node.seconds is not None for node in nodes)
    return GraphIR(tuple(nodes), "host time as torchlens measured it" if timed else "")


def _innermost(operation: Any) -> str:
    modules = getattr(operation, "modules", None) or ()
    return str(list(modules)[-1]).split(":")[0] if modules else ""


def _torchlens_facts(operation: Any) -> Iterator[tuple[str, str]]:
    shape, dtype = getattr(operation, "shape", None), getattr(operation, "dtype", None)
    if shape is not None:
        yield "shape", "x".join(map(str, shape)) or "scalar"
    if dtype is not None:
        yield "dtype", str(dtype).removeprefix("torch.")
    device = getattr(operation, "output_device", None)
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
