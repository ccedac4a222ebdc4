"""What changed between two versions of a tracker, cell by cell (FID-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torchlens_conformance.protocol import Refusal

from .columns import MEASURED, Column, cells_of, measured_versions, version_key
from .significant import Cell, CellChange, cell_changes


def route_changes(before: Mapping[str, Sequence[Cell]], after: Mapping[str, Sequence[Cell]]) -> list[CellChange]:
    """Return every changed cell of the routes that both sides have measured."""
    return [change for route in after if route in before for change in cell_changes(route, before[route], after[route])]


@dataclass(frozen=True, slots=True)
class VersionStep:
    """From one measured version of a tracker to another.

    Args:
        old: The older version.
        new: The newer version.
        changes: The changed cells of the routes that both have measured.
        shared: The routes that both have measured.
        alone: Routes that one version has measured, each with the version that has not.
    """

    old: str
    new: str
    changes: Sequence[CellChange]
    shared: Sequence[str]
    alone: Mapping[str, str]

    def remarks(self) -> list[str]:
        """Say which routes could not be compared."""
        return [
            f"{route} could not be compared: it is not measured in {version}." for route, version in self.alone.items()
        ]


def version_step(columns: Sequence[Column], tracker: str, old: str, new: str) -> VersionStep:
    """Return what changed for a user of ``tracker`` between two measured versions.

    Raises ``fidelity_tracker_unknown`` and ``fidelity_version_unmeasured``, which name what is measured, and
    ``fidelity_not_comparable`` when no route was measured in both.
    """
    step = _step(old, new, *(measured_cells(columns, tracker, version) for version in (old, new)))
    if not step.shared:
        raise Refusal(
            "fidelity_not_comparable",
            f"No route of {tracker} is measured in both {old} and {new}.",
            remedy="Name another version, or measure again what could not be measured.",
            unmeasured=dict(step.alone),
        )
    return step


def _step(old: str, new: str, before: Mapping[str, Sequence[Cell]], after: Mapping[str, Sequence[Cell]]) -> VersionStep:
    shared = [route for route in after if route in before]
    alone = {
        route: new if route in before else old for route in dict.fromkeys([*before, *after]) if route not in shared
    }
    return VersionStep(old, new, route_changes(before, after), shared, alone)


def measured_cells(columns: Sequence[Column], tracker: str, version: str) -> dict[str, Sequence[Cell]]:
    """Return the cells of a version by route. Raises as :func:`version_step` does."""
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


def history(columns: Sequence[Column], tracker: str) -> list[VersionStep]:
    """Return the step between each two measured versions of ``tracker`` that follow each other."""
    cells: dict[str, dict[str, Sequence[Cell]]] = {}
    for column in columns:
        if column["tracker"] == tracker and column["status"] == MEASURED:
            cells.setdefault(column["version"], {})[column["route"]] = column["cells"]
    versions = sorted(cells, key=version_key)
    return [_step(old, new, cells[old], cells[new]) for old, new in pairwise(versions)]
