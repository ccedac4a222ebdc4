"""Two measured files beside each other: what differs, and what could not be compared (FID-6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchlens_conformance.protocol import Refusal

from ..results import Result
from ..verdicts import NOT_MEASURED
from .changes import route_changes
from .columns import MEASURED
from .significant import Cell, CellChange

Names: TypeAlias = tuple[str, str]
"""How the two files are called in what is told about them."""

_NAMES: Names = ("the first file", "the second file")
_Route: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two measured files say about each other.

    Args:
        changes: The cells that differ.
        remarks: What is in one file only, was not measured, or is of another version.
        cells: How many cells of trackers both have measured; at least one.
    """

    changes: Sequence[CellChange]
    remarks: Sequence[str]
    cells: int


def compare_results(one: Result, other: Result, *, names: Names = _NAMES) -> Comparison:
    """Return the changed cells of two measured files, and remarks on what cannot be compared.

    A cell counts when both files have measured it. Raises ``fidelity_not_comparable`` for a void file, for two files
    that did not send the same points, and when no cell of a tracker was measured in both. Clause: FID-6.
    """
    for result, name in zip((one, other), names):
        refuse_void(result, name=name)
    refuse_other_points(*(result["tensors"]["sent_digest"] for result in (one, other)))
    routes = [{route["id"]: route for route in result["routes"]} for result in (one, other)]
    cells: tuple[dict[str, list[Cell]], dict[str, list[Cell]]] = {}, {}
    remarks: list[str] = []
    common = 0
    for name in dict.fromkeys([*routes[0], *routes[1]]):
        pair = [found.get(name) for found in routes]
        remarks += _remarks(name, pair, names)
        measured = [route for route in pair if route is not None and route["status"] == MEASURED]
        if len(measured) < len(pair):
            continue
        lacking = _unmeasured(measured[0]) | _unmeasured(measured[1])
        for side, route in zip(cells, measured):
            side[name] = [row for row in route["rows"] if _key(row) not in lacking]
        if measured[0]["tracker"] is not None:
            common += len({_key(row) for row in cells[0][name]} & {_key(row) for row in cells[1][name]})
    if not common:
        raise _nothing_in_common(routes, remarks)
    return Comparison(route_changes(*cells), remarks, common)


def refuse_void(result: Result, *, name: str) -> None:
    """Refuse a void file. Raises ``fidelity_not_comparable``. Clause: FID-7."""
    if result["void"]:
        raise Refusal(
            "fidelity_not_comparable",
            "A void file says nothing about a tracker, since a control was off when it was measured.",
            remedy="Measure it again with `torchlens-conformance fidelity version` or `fidelity run`.",
            file=name,
            void_reasons=result["void_reasons"],
        )


def refuse_other_points(one: str, other: str) -> None:
    """Refuse two digests of sent points that differ. Raises ``fidelity_not_comparable``. Clause: FID-6."""
    if one != other:
        raise Refusal(
            "fidelity_not_comparable",
            "The two measurements did not send the same points.",
            remedy="Measure both with the committed points (`fidelity version`), or from the same source "
            "(`fidelity run`).",
            sent_digests=[one, other],
        )


def _key(row: Cell) -> tuple[str, str | None]:
    return row["id"], row["grid"]


def _unmeasured(route: _Route) -> set[tuple[str, str | None]]:
    return {_key(row) for row in route["rows"] if row["verdict"] == NOT_MEASURED}


def _remarks(name: str, pair: Sequence[_Route | None], names: Names) -> Iterator[str]:
    present = [(route, file) for route, file in zip(pair, names) if route is not None]
    if len(present) == 1:
        yield f"{name} is in {present[0][1]} only"
    for route, file in present:
        if route["status"] != MEASURED:
            yield f"{name} is not measured in {file}, {route['status']}: {route['detail']}"
            continue
        for row in dict.fromkeys(row["id"] for row in route["rows"] if row["verdict"] == NOT_MEASURED):
            yield f"{name}, {row} is not measured in {file}"
    versions = list(dict.fromkeys(route["version"] for route, _ in present))
    if len(versions) == 2:
        yield f"{name}: {versions[0]} against {versions[1]}"


def _nothing_in_common(routes: Sequence[Mapping[str, _Route]], remarks: Sequence[str]) -> Refusal:
    measured = [
        [name for name, route in found.items() if route["tracker"] is not None and route["status"] == MEASURED]
        for found in routes
    ]
    return Refusal(
        "fidelity_not_comparable",
        "The two files have no measured cell of a tracker in common.",
        remedy="Measure the same tracker for both with `torchlens-conformance fidelity version TRACKER --output FILE`.",
        measured=measured,
        remarks=list(remarks),
    )
