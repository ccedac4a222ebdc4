"""The operations that are watched, chosen from what discovery saw (TIER-3, ATTACH-5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ...protocol.refusals import Refusal
from ..operations.model import Operation, OperationTrace, TensorFacts
from ..sites import CENSUS, ROOT_LEAF, matches
from .selection import FacetKey, FunctionSelector, HeadSplit, OperationChoice

if TYPE_CHECKING:
    from torch import Tensor

FLOATING = frozenset({"float64", "float32", "float16", "bfloat16"})
"""Dtypes of outputs that are watched."""


@dataclass(frozen=True, slots=True)
class OperationSite:
    """One watched operation.

    Attributes:
        label: ``<function>_<k>_<n>``.
        function: The function.
        module: Path of the module in which it ran in discovery; empty for the root.
        outputs: (leaf, facts) of every output of floating-point numbers; the leaf of a single output is the label.
        positions: Where each of them stands among all outputs.
        split: How they are split, or None.
    """

    label: str
    function: str
    module: str
    outputs: tuple[tuple[str, TensorFacts], ...]
    positions: tuple[int, ...]
    split: HeadSplit | None

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaves of all its series: each output, and behind it its facets."""
        names = () if self.split is None else self.split.names
        return tuple(part for leaf, _ in self.outputs for part in (leaf, *(f"{leaf}/{name}" for name in names)))

    @property
    def series(self) -> int:
        """How many leaves each output has: itself and its facets."""
        return 1 if self.split is None else 1 + self.split.heads

    @property
    def elements(self) -> int:
        """Elements that are read when shapes are those of discovery."""
        return sum(prod(facts.shape) for _, facts in self.outputs) * (1 if self.split is None else 2)

    def tensors(self, given: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield (leaf, tensor) of the watched outputs among what one call gave."""
        for (leaf, _), position in zip(self.outputs, self.positions):
            if position < len(given):
                yield leaf, given[position]


def operation_sites(
    trace: OperationTrace, prefixes: Sequence[str] | None, choice: OperationChoice
) -> list[OperationSite]:
    """Return the chosen operations of a trace, in its order.

    Args:
        trace: What discovery saw.
        prefixes: Prefixes of module paths; ``_root`` stands for the root's own operations.
        choice: Functions and facets.

    Raises ``watch_selector_matched_no_sites`` with the census of the functions that were seen, and with what was not
    seen, when there is no selector, or when one, or the key of a facet, takes nothing; ``watch_facet_shape_invalid``
    when a split does not fit. Clause: TIER-3, ATTACH-5.
    """
    watchable = [operation for operation in trace.operations if _floating(operation)]
    selectors: list[FacetKey] = [*(prefixes or ()), *choice.functions]
    if not selectors:
        raise _no_match([], trace)
    for selector in selectors:
        if not any(_takes(selector, operation) for operation in watchable):
            raise _no_match([selector], trace)
    taken = (operation for operation in watchable if any(_takes(selector, operation) for selector in selectors))
    sites = [_site(operation, choice) for operation in taken]
    _require_used_facets(sites, choice, trace)
    return sites


def _takes(selector: FacetKey, operation: Operation) -> bool:
    """Return whether a function, or a prefix of module paths, takes an operation."""
    if isinstance(selector, FunctionSelector):
        return operation.function == selector.name
    return matches(selector, (operation.module or ROOT_LEAF,))


def _floating(operation: Operation) -> tuple[int, ...]:
    return tuple(index for index, facts in enumerate(operation.outputs) if facts.dtype in FLOATING)


def _site(operation: Operation, choice: OperationChoice) -> OperationSite:
    positions = _floating(operation)
    label = operation.label
    several = len(operation.outputs) > 1
    outputs = tuple((f"{label}/{index}" if several else label, operation.outputs[index]) for index in positions)
    split = choice.facets.get(label, choice.facets.get(FunctionSelector(operation.function)))
    if split is not None:
        for leaf, facts in outputs:
            if not split.fits(facts.shape):
                raise Refusal(
                    "watch_facet_shape_invalid",
                    f"split_heads({split.heads}, dim={split.dim}) does not fit {leaf}, whose shape is {facts.shape}.",
                    remedy="The axis must exist, and its size must be a multiple of the heads.",
                    operation=leaf,
                    shape=list(facts.shape),
                    heads=split.heads,
                    dim=split.dim,
                )
    return OperationSite(label, operation.function, operation.module, outputs, positions, split)


def _require_used_facets(sites: Sequence[OperationSite], choice: OperationChoice, trace: OperationTrace) -> None:
    watched = {site.label for site in sites} | {FunctionSelector(site.function) for site in sites}
    for key in choice.facets:
        if key not in watched:
            raise _no_match([key], trace, labels=sorted(site.label for site in sites))


def _no_match(selectors: Sequence[FacetKey], trace: OperationTrace, *, labels: Sequence[str] = ()) -> Refusal:
    spelled = [f'func("{each.name}")' if isinstance(each, FunctionSelector) else each for each in selectors]
    census = trace.census()
    remedy = "Use a function of the census, a path of a module that runs operations of its own, or a label of the plan."
    if "scaled_dot_product_attention" in census:
        remedy += (
            " Attention that runs as one fused function shows no softmax; transformers models compute it step by step"
            ' with attn_implementation="eager".'
        )
    if trace.unseen:
        remedy += " Discovery does not see everything here; unseen= says what it left out."
    return Refusal(
        "watch_selector_matched_no_sites",
        f"{' '.join(spelled) or 'An empty select='} takes no operation with an output of floating-point numbers.",
        remedy=remedy,
        selectors=spelled,
        census=census,
        modules=sorted({operation.module or ROOT_LEAF for operation in trace.operations})[:CENSUS],
        **({"unseen": list(trace.unseen)[:CENSUS]} if trace.unseen else {}),
        **({"watched": list(labels)[:CENSUS]} if labels else {}),
    )
