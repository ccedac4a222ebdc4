"""Graphs as TensorBoard's GraphDef and back (GRAPH-1, TB-1).

A node is a mapping with ``name``, ``op`` and ``inputs``; ``device`` (text) and ``attributes`` (a mapping to text,
bytes, truth values, integers of 64 bits and floats that are exact in float32) are carried as well.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from torchlens_conformance.protocol import FrozenMapping, GraphPoint, Refusal

from .packages import require_package

_PROTO = "tensorboard.compat.proto"
_NODE_KEYS = frozenset({"name", "op", "inputs", "device", "attributes"})


def graph_to_proto(graph: Mapping[str, Any]) -> Any:
    """Return ``{"nodes": [...]}`` as a GraphDef.

    Raises ``tracker_value_unsupported`` for what a GraphDef has no place for. Clause: TB-1.
    """
    further = sorted(set(graph) - {"nodes"})
    if further:
        raise _no_place("the graph", further)
    result = require_package(f"{_PROTO}.graph_pb2", extra="tensorboard").GraphDef()
    for node in graph.get("nodes", ()):
        if not isinstance(node, Mapping) or not {"name", "op"} <= set(node):
            raise _no_place("a node without name and op", [repr(node)[:80]])
        name = node["name"]
        further = sorted(set(node) - _NODE_KEYS)
        if further:
            raise _no_place(f"node {name!r}", further)
        entry = result.node.add(name=name, op=node["op"], input=node.get("inputs", ()), device=node.get("device", ""))
        for key, value in node.get("attributes", {}).items():
            _set_attribute(entry.attr[key], f"node {name!r}", key, value)
    return result


def graph_from_proto(serialized: bytes) -> GraphPoint:
    """Return a serialized GraphDef as a point; attributes of other kinds stand in as their text form.

    Raises ``ValueError`` when the bytes are no GraphDef. Clause: TB-1.
    """
    graph_def = require_package(f"{_PROTO}.graph_pb2", extra="tensorboard").GraphDef()
    try:
        graph_def.ParseFromString(serialized)
    except Exception as error:
        # The decoder's own exception class moved between protobuf releases; any failure means the same here.
        raise ValueError(f"no GraphDef: {error}") from None
    return GraphPoint(FrozenMapping({"nodes": [_node(entry) for entry in graph_def.node]}))


def _node(entry: Any) -> dict[str, Any]:
    node: dict[str, Any] = {"name": entry.name, "op": entry.op, "inputs": list(entry.input)}
    if entry.device:
        node["device"] = entry.device
    if entry.attr:
        node["attributes"] = {key: _attribute(entry.attr[key]) for key in sorted(entry.attr)}
    return node


def _attribute(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "s":
        try:
            return value.s.decode("utf-8")
        except UnicodeDecodeError:
            return bytes(value.s)
    if kind in ("i", "f", "b"):
        return getattr(value, kind)
    return " ".join(str(value).split())


def _set_attribute(slot: Any, where: str, key: str, value: Any) -> None:
    # bool before int: True is an int in Python.
    if isinstance(value, bool):
        slot.b = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        slot.i = value
    elif isinstance(value, float) and _fits_float32(value):
        slot.f = value
    elif isinstance(value, str):
        slot.s = value.encode("utf-8")
    elif isinstance(value, bytes):
        slot.s = value
    else:
        raise _no_place(f"attribute {key!r} of {where}", [repr(value)[:80]])


def _fits_float32(value: float) -> bool:
    try:
        (narrow,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return False
    return bool(narrow == value) or value != value


def _no_place(where: str, further: list[str]) -> Refusal:
    return Refusal(
        "tracker_value_unsupported",
        f"A GraphDef has no place for this of {where}.",
        remedy="Send nodes with name, op, inputs, device and attributes (text, bytes, bool, int, float32) only.",
        where=where,
        further=further,
    )
