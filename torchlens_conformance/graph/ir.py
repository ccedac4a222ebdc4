"""The graph of what really ran, as plain data: nodes by name, edges, host times where they were measured (GRAPH-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol import FrozenMapping, GraphPoint


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node.

    Attributes:
        name: Unique; the path of its module with slashes, then its own name: ``h/0/attn/softmax_1_7``.
        op: The function, or ``Input``, ``Parameter``, ``Buffer``, ``Outside`` (made before the forward), ``Output``;
            ``Module`` for a module that ran and called no function.
        inputs: Names of the nodes that it takes tensors from.
        attributes: Text facts that are known: ``shape``, ``dtype``, ``device``, ``module``, ``writes``; ``used`` is
            ``no`` for a parameter that the forward left alone; ``trace_mode`` stands at the output.
        seconds: Host time of the call, None where there is none.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, str]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GraphIR:
    """A directed acyclic graph in the order in which it ran.

    Attributes:
        nodes: Every node stands behind the nodes that it takes from.
        evidence: What the times are evidence of; empty without times.
        notes: What was not looked into, in sentences.
        trace_mode: What the graph comes from, one of :data:`~torchlens_conformance.watch.operations.TRACE_MODES`.
        parameters: Elements of all parameters of the model, tied ones once; None where the trace does not tell.
    """

    nodes: tuple[GraphNode, ...]
    evidence: str
    notes: tuple[str, ...] = ()
    trace_mode: str = "executed"
    parameters: int | None = None

    def seconds(self) -> dict[str, float]:
        """Return the host time of each node that has one, by name."""
        return {node.name: node.seconds for node in self.nodes if node.seconds is not None}

    def as_point(self) -> GraphPoint:
        """Return the graph as a point for ``emit_graph`` of a sink. Clause: POINT-1, GRAPH-1."""
        return GraphPoint(FrozenMapping({"nodes": [self._as_row(node) for node in self.nodes]}))

    def _as_row(self, node: GraphNode) -> dict[str, Any]:
        attributes = dict(node.attributes)
        if node.seconds is not None:
            attributes["host_seconds"] = repr(node.seconds)
            attributes["host_seconds_evidence"] = self.evidence
        return {"name": node.name, "op": node.op, "inputs": list(node.inputs), "attributes": attributes}


def scope_of(path: str) -> str:
    """Return a dotted path with slashes, as viewers of graphs group it.

    A colon would mean one of several outputs to them, and a caret an edge without data: both become underscores.
    """
    return path.replace(".", "/").replace(":", "_").replace("^", "_")


def scoped(module: str, name: str) -> str:
    """Return ``name`` below its module, with slashes."""
    return f"{scope_of(module)}/{name}" if module else name


def upward(path: str) -> list[str]:
    """Return the dotted paths from the root, which is empty, down to ``path``."""
    parts = path.split(".") if path else []
    return [".".join(parts[:length]) for length in range(len(parts) + 1)]


class Names:
    """Gives each label of a trace one node name, different from every other."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def give(self, label: str, wanted: str) -> str:
        """Return the name for a label: ``wanted``, or with a number when that is taken."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}__{number}", number + 1
        self._taken.add(name)
        self._given[label] = name
        return name

    def __contains__(self, label: object) -> bool:
        return label in self._given

    def of(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return the names of labels; a label that has no node is left out."""
        return tuple(dict.fromkeys(self._given[label] for label in labels if label in self._given))
