"""Renewing pins: measure, show each cell that differs, then write the pins and the table they rest on (FID-3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchlens_conformance.protocol import Refusal

from .files import write_text
from .pins import Pin, installed_version, pinned_text, read_pins
from .versions.changes import route_changes
from .versions.columns import MEASURED, Column, cells_of, digest_of, measured_versions, same_version
from .versions.merge import merge_columns
from .versions.significant import CellChange
from .versions.store import dump_columns, load_columns


@dataclass(frozen=True, slots=True)
class UpdatePlaces:
    """Where the pins and their table lie.

    Args:
        pins: The constraints file.
        table: The table of versions.
        page: The table's page, in a checkout only.
    """

    pins: Path
    table: Path
    page: Path | None = None


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """What would be written.

    Args:
        pins: The new pins.
        before: The pins that they replace, by distribution.
        changes: The cells that differ from what was pinned, by distribution; None when there was nothing to compare.
        unmeasured: Columns that could not be measured, of trackers that are not pinned therefore.
        columns: The whole new table.
    """

    pins: Sequence[Pin]
    before: Mapping[str, Pin]
    changes: Mapping[str, Sequence[CellChange] | None]
    unmeasured: Sequence[Column]
    columns: Sequence[Column]

    def format(self) -> str:
        """Return the plan for people: a paragraph for each pin."""
        lines = []
        for pin in self.pins:
            old = self.before.get(pin.distribution)
            lines.append(f"{pin.distribution}: {old.version if old else 'not pinned'} -> {pin.version}")
            changes = self.changes[pin.distribution]
            if old and old.result == pin.result:
                lines.append("  the result is the pinned one")
            elif changes is None:
                lines.append("  nothing to compare with: what was pinned is not in the table")
            else:
                lines += [f"  {change}" for change in changes] or ["  no cell differs"]
        lines += [f"{c['tracker']}, {c['route']}: not pinned, {c['status']}: {c['detail']}" for c in self.unmeasured]
        return "\n".join(lines) or "No tracker was measured."


def update_places(folder: Path, *, pins: Path | None, table: Path | None) -> UpdatePlaces:
    """Return the places: those that are named, else those of the checkout whose top ``folder`` is.

    Raises ``fidelity_pins_invalid`` outside a checkout when one of them is not named.
    """
    from .output import project_root

    root = project_root(folder)
    if root is None and (pins is None or table is None):
        raise Refusal(
            "fidelity_pins_invalid",
            "Outside a checkout there are no pins to renew.",
            remedy="Name your own files with --pins and --table.",
        )
    own = root is not None and table is None
    return UpdatePlaces(
        pins or (root or folder) / "pins.txt",
        table or (root or folder) / "fidelity" / "results" / "versions.json",
        (root or folder) / "docs" / "fidelity-versions.md" if own else None,
    )


def measured_columns(sources: Sequence[Path], *, trackers: Collection[str], timeout: float) -> list[Column]:
    """Return the columns of measured files, or else measure every installed tracker with the committed points."""
    if sources:
        return [column for path in sources for column in load_columns(path)]
    from .console import measure
    from .fixture import load_fixture
    from .routes import TRACKER_ROUTES, get_route
    from .run import Options
    from .versions.columns import columns_of

    found = {route: get_route(route).distribution or "" for route in TRACKER_ROUTES}
    routes = [r for r, d in found.items() if (d in trackers or not trackers) and installed_version(d)]
    measurement = measure(load_fixture(), Options(routes=routes, timeout=timeout)) if routes else None
    return columns_of(measurement.result) if measurement is not None else []


def plan_update(
    columns: Sequence[Column], places: UpdatePlaces, *, trackers: Collection[str], keep: bool = False
) -> UpdatePlan:
    """Lay the new columns beside the pins and the table.

    Args:
        columns: What was measured.
        places: Where pins and table lie.
        trackers: Distributions to pin; none means all that were measured.
        keep: Keep the pinned versions and renew only what was measured with them; else the highest version is pinned.
    """
    before = {pin.distribution: pin for pin in read_pins(places.pins)} if places.pins.is_file() else {}
    old = load_columns(places.table) if places.table.is_file() else []
    wanted = [c for c in columns if not trackers or c["tracker"] in trackers]
    failed = [c for c in wanted if c["status"] != MEASURED]
    merged = merge_columns([*old, *wanted])
    pins, changes = [], {}
    for tracker in dict.fromkeys(c["tracker"] for c in wanted):
        versions = measured_versions(wanted, tracker)
        if keep:
            versions = [v for v in versions if tracker in before and same_version(v, before[tracker].version)]
        # A version is pinned whole or not at all.
        broken = {c["version"] for c in failed if c["tracker"] == tracker}
        if not versions or versions[-1] in broken:
            continue
        version = versions[-1]
        pins.append(Pin(tracker, version, digest_of(merged, tracker, version)))
        pin = before.get(tracker)
        cells = cells_of(old, tracker, pin.version) if pin else {}
        changes[tracker] = route_changes(cells, cells_of(wanted, tracker, version)) if cells else None
    pinned = {pin.distribution for pin in pins}
    return UpdatePlan(pins, before, changes, [c for c in failed if c["tracker"] not in pinned], merged)


def write_update(plan: UpdatePlan, places: UpdatePlaces) -> None:
    """Write table, page and pins, each whole or not at all; the pins last, since they rest on the table."""
    from .versions.page import versions_page

    places.table.parent.mkdir(parents=True, exist_ok=True)
    write_text(places.table, dump_columns(plan.columns))
    if places.page is not None:
        write_text(places.page, versions_page(plan.columns))
    text = places.pins.read_text(encoding="utf-8") if places.pins.is_file() else ""
    write_text(places.pins, pinned_text(text, plan.pins))
