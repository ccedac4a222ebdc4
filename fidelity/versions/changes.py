"""What changed between two versions of a tracker, and between two measured files, cell by cell (FID-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from torchlens_conformance.protocol import Refusal

from ..results import Result
from .columns import MEASURED, Column, cells_of, measured_versions, version_key
from .significant import Cell, CellChange, cell_changes


def route_changes(before: Mapping[str, Sequence[Cell]], after: Mapping[str, Sequence[Cell]]) -> list[CellChange]:
    """Return every changed cell of the routes that both sides have measured."""
    return [change for route in after if route in before for change in cell_changes(route, before[route], after[route])]


def version_changes(columns: Sequence[Column], tracker: str, old: str, new: str) -> list[CellChange]:
    """Return what changed for a user of ``tracker`` between two measured versions.

    Raises ``fidelity_tracker_unknown`` and ``fidelity_version_unmeasured``, which name what is measured.
    """
    return route_changes(*(measured_cells(columns, tracker, version) for version in (old, new)))


def measured_cells(columns: Sequence[Column], tracker: str, version: str) -> dict[str, Sequence[Cell]]:
    """Return the cells of a version by route. Raises as :func:`version_changes` does."""
    known = sorted({column["tracker"] for column in columns})
    if tracker not in known:
        raise Refusal(
            "fidelity_tracker_unknown",
            f"Nothing is measured of {tracker!r}.",
            remedy=f"Use one of {', '.join(known)}.",
            tracker=tracker,
        )
    cells = cells_of(columns, tracker, version)
    if not cells:
        below, above = neighbours(measured_versions(columns, tracker), version)
        nearest = " and ".join(item for item in (below, above) if item)
        raise Refusal(
            "fidelity_version_unmeasured",
            f"{tracker} {version} is not measured.",
            remedy=f"The nearest measured versions are {nearest or '(none)'}; measure yours with "
            f"`torchlens-conformance fidelity version {tracker} --output FILE` where it is installed.",
            tracker=tracker,
            version=version,
            below=below,
            above=above,
        )
    return cells


def neighbours(versions: Iterable[str], version: str) -> tuple[str | None, str | None]:
    """Return the nearest version below and the nearest above ``version``; None where there is none."""
    ordered = sorted(versions, key=version_key)
    here = version_key(version)
    below = [item for item in ordered if version_key(item) < here]
    above = [item for item in ordered if version_key(item) > here]
    return (below[-1] if below else None, above[0] if above else None)


def history(columns: Sequence[Column], tracker: str) -> list[tuple[str, str, list[CellChange]]]:
    """Return (older, newer, changes) for each two measured versions of ``tracker`` that follow each other."""
    cells: dict[str, dict[str, Sequence[Cell]]] = {}
    for column in columns:
        if column["tracker"] == tracker and column["status"] == MEASURED:
            cells.setdefault(column["version"], {})[column["route"]] = column["cells"]
    versions = sorted(cells, key=version_key)
    return [(old, new, route_changes(cells[old], cells[new])) for old, new in pairwise(versions)]


def compare_results(one: Result, other: Result) -> tuple[list[CellChange], list[str]]:
    """Return the changed cells of two measured files, and remarks on what cannot be compared.

    Raises ``fidelity_not_comparable`` when the two did not send the same points. Clause: FID-6.
    """
    digests = [result["tensors"]["sent_digest"] for result in (one, other)]
    if digests[0] != digests[1]:
        raise Refusal(
            "fidelity_not_comparable",
            "The two files did not send the same points.",
            remedy="Measure both with the committed points (`fidelity version`), or from the same source "
            "(`fidelity run`).",
            sent_digests=digests,
        )
    routes = [{route["id"]: route for route in result["routes"]} for result in (one, other)]
    every = dict.fromkeys([*routes[0], *routes[1]])
    remarks = [f"{name} is in one file only" for name in every if not all(name in found for found in routes)]
    remarks += [
        f"{name}: {before['version']} against {after['version']}"
        for name, before, after in ((name, routes[0][name], routes[1].get(name)) for name in routes[0])
        if after is not None and before["version"] != after["version"]
    ]
    cells = [{name: route["rows"] for name, route in found.items()} for found in routes]
    return route_changes(cells[0], cells[1]), remarks
