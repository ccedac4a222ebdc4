"""Which node of a graph a row of statistics belongs to: rows and graph speak of the same things (GRAPH-1)."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.tags import FAMILIES, NONFINITE_KINDS
from .ir import GraphIR, scope_of

_HELD = ("parameters", "gradients", "updates")


def nodes_of_rows(
    ir: GraphIR, tags: Iterable[str], *, name: str | None = None, namespace: str | None = None
) -> dict[str, str | None]:
    """Return, by tag, the node that each row of statistics names; None for what names nothing. Experimental.

    A row of a parameter belongs to the parameter's node, one of an operation (with its outputs and facets) to that
    operation, one of a module's output to the last operation that ran in the module, and one of ``_root`` to the
    output of the whole. Rows under ``torchlens/``, and tags of no family, are no statistics and are left out.

    Args:
        ir: A graph of the watched model.
        tags: Tags of scalars or histograms.
        name: The ``name=`` of the session.
        namespace: Its ``namespace=``.

    Clause: GRAPH-1, TAG-1.
    """
    index = _Index(ir)
    given = ((tag, _family_and_leaf(tag, name, namespace)) for tag in tags)
    return {tag: index.find(*found) for tag, found in given if found is not None}


def _family_and_leaf(tag: str, name: str | None, namespace: str | None) -> tuple[str, str] | None:
    parts = tag.split("/")
    if namespace is not None and parts[0] == namespace:
        del parts[0]
    if parts[0] not in FAMILIES:
        return None
    if name is not None and parts[1:2] == [name]:
        del parts[1]
    family, statistic, leaf = parts[0], "".join(parts[1:2]), "/".join(parts[2:])
    if family == "nonfinite":
        watched = (statistic.removesuffix(f"_{kind}") for kind in NONFINITE_KINDS if statistic.endswith(f"_{kind}"))
        family = next((each for each in watched if each in FAMILIES), "")
    return family, leaf if family else ""


class _Index:
    """The nodes of a graph by what rows call them."""

    def __init__(self, ir: GraphIR) -> None:
        self._held = {node.name: node.name for node in ir.nodes if node.op == "Parameter"}
        self._labels: dict[str, str] = {}
        self._modules: dict[str, str] = {}
        for node in ir.nodes:
            if node.op in ("Input", "Parameter", "Buffer", "Outside", "Output"):
                continue
            *path, label = node.name.split("/")
            self._labels[label] = node.name
            self._modules.update({"/".join(path[:length]): node.name for length in range(1, len(path) + 1)})
        self._output = ir.nodes[-1].name if ir.nodes else None

    def find(self, family: str, leaf: str) -> str | None:
        """Return the node of a leaf of a family, or None."""
        if family in _HELD:
            return self._held.get(scope_of(leaf))
        # Parts of an output, and facets, stand behind a slash, which is no part of a module's path or of a label.
        site = leaf.split("/")[0]
        if site == "_root":
            return self._output
        return self._labels.get(site) or self._modules.get(scope_of(site))
