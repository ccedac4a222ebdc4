"""Calls of an observed forward, each matched with its own of discovery (TIER-3).

A call is known by its place (the function, the module and the code that calls it) and by its number there. Operations
elsewhere do not count, so one that a larger batch adds moves no series to another label. Whether numbers at a place
mean the same is known when the forward is over: there must have been as many calls as in discovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..unseen import unseen
from .places import Place, paths_of, place_here
from .sites import OperationSite

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..activations import ForwardRecord, Taken
    from ..operations.model import Operation
    from .discovery import Discovery
    from .selection import OperationChoice

FAMILY = "activations"

Calls: TypeAlias = "Mapping[Place, Sequence[OperationSite | None]]"
"""By place, the site of every call in discovery, in order; None for one that is not watched."""


def calls_of(sites: Iterable[OperationSite], choice: OperationChoice, found: Discovery) -> Calls:
    """Return the calls of all functions of which something is watched."""
    watched = {site.label: site for site in sites}
    functions = {site.function for site in watched.values()} | {function.name for function in choice.functions}
    calls: dict[Place, list[OperationSite | None]] = {}
    for operation in found.trace.operations:
        if operation.function in functions and operation.label in found.places:
            calls.setdefault(found.places[operation.label], []).append(watched.get(operation.label))
    return calls


@dataclass(frozen=True, slots=True)
class _Seen:
    """One call: its label in this forward, whether it lacks a series that it should have, its site, what was taken."""

    label: str
    chosen: bool
    site: OperationSite | None
    taken: Taken | None


class ObservedForward:
    """The calls of one forward; what they gave is measured at once, and counts when the forward is over.

    Args:
        model: The innermost model.
        calls: Those of discovery.
        chosen: Functions of which every call should have a series.
        record: Takes what counts.
    """

    def __init__(self, model: nn.Module, calls: Calls, chosen: frozenset[str], record: ForwardRecord) -> None:
        self._model = model
        self._calls = calls
        self._chosen = chosen
        self._record = record
        self._functions = chosen.union(place.function for place in calls)
        self._paths = paths_of(model)
        self._seen: dict[Place, list[_Seen]] = {}

    def see(self, operation: Operation, tensors: Sequence[Tensor]) -> None:
        """Take one call, where its tensors are still what it gave."""
        if operation.function not in self._functions or not self._record.open:
            return
        with unseen():
            place = place_here(operation.function, self._model, self._paths)
            seen, expected = self._seen.setdefault(place, []), self._calls.get(place, ())
            site = expected[len(seen)] if len(seen) < len(expected) else None
            chosen = operation.function in self._chosen and any(tensor.is_floating_point() for tensor in tensors)
            seen.append(_Seen(operation.label, chosen, site, None if site is None else self._start(site, tensors)))

    def settle(self) -> None:
        """Keep what was taken at places with as many calls as in discovery; name the others. Nothing is raised."""
        if not self._record.open:
            return
        for place, seen in self._seen.items():
            complete = len(seen) == len(self._calls.get(place, ()))
            for call in seen:
                if complete and call.site is not None:
                    self._record.seen.add(call.site.label)
                    if call.taken is not None:
                        self._record.keep(call.taken)
                elif call.chosen:
                    self._record.report("operation_unknown_label", "", call.label)

    def _start(self, site: OperationSite, tensors: Sequence[Tensor]) -> Taken | None:
        try:
            taken = [(leaf, tensor) for leaf, tensor in site.tensors(tensors) if tensor.is_floating_point()]
            parts = [(leaf, part) for leaf, whole in taken for leaf, part in self._facets(site, leaf, whole)]
            return self._record.start(FAMILY, [*taken, *parts])
        except Exception as error:
            self._record.fail(error, site.label)
            return None

    def _facets(self, site: OperationSite, leaf: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
        if site.split is None:
            return []
        if not site.split.fits(tensor.shape):
            self._record.report("facet_shape_changed", f"shape {tuple(tensor.shape)}", leaf)
            return []
        return [(f"{leaf}/{name}", part) for name, part in site.split.parts(tensor.detach())]
