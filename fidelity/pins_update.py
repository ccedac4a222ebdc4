"""Renewing pins: measure, show each cell that differs, then write the pins and the table they rest on (FID-3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchlens_conformance.protocol import Refusal

from .pins import Pin, PinsFile, installed_version, load_pins, pinned_text, tracker_named
from .pins_write import write_together
from .versions.changes import route_changes
from .versions.columns import MEASURED, Column, cells_of, digest_of, measured_versions, same_version
from .versions.merge import merge_columns
from .versions.significant import result_digest
from .versions.store import COMMITTED, VERSIONS_PAGE, VERSIONS_RESULTS, dump_columns, load_columns
from .versions.told import Told, told


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

    def files(self) -> list[Path]:
        """Return every file that is written."""
        return [self.table, *([self.page] if self.page else []), self.pins]


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """What would be written.

    Args:
        pins: The new pins.
        shown: What a person should see of each, in lines: the version before and after, each cell that differs.
        left: Trackers whose pins are left as they are, though they were asked for or are pinned, with the reason.
        unmeasured: Columns that could not be measured, of trackers that are not pinned therefore.
        columns: The whole new table.
    """

    pins: Sequence[Pin]
    shown: Mapping[str, Sequence[str]]
    left: Mapping[str, str]
    unmeasured: Sequence[Column]
    columns: Sequence[Column]

    def format(self) -> str:
        """Return the plan for people: a paragraph for each pin."""
        lines = [line for pin in self.pins for line in self.shown[pin.distribution]]
        lines += [f"{tracker}: not pinned, {reason}" for tracker, reason in self.left.items()]
        lines += [f"{c['tracker']}, {c['route']}: not pinned, {c['status']}: {c['detail']}" for c in self.unmeasured]
        return "\n".join(lines) or "No tracker was measured that could be pinned."


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
        table or (root or folder) / VERSIONS_RESULTS,
        (root or folder) / VERSIONS_PAGE if own else None,
    )


def named_trackers(names: Collection[str], columns: Sequence[Column]) -> list[str]:
    """Return the trackers with these names, which are those of ``columns`` or have a route here.

    Raises ``fidelity_tracker_unknown``.
    """
    known = [*_route_trackers().values(), *(c["tracker"] for c in columns)]
    return list(dict.fromkeys(tracker_named(name, known) for name in names))


def measured_columns(places: UpdatePlaces, *, trackers: Collection[str], timeout: float) -> list[Column]:
    """Measure the installed ones of ``trackers`` (none means all) with the committed points.

    Raises as :func:`plan_update` does about the pins, before anything is measured.
    """
    from .console import measure
    from .fixture import load_fixture
    from .run import Options
    from .versions.columns import columns_of

    found = {route: name for route, name in _route_trackers().items() if name in trackers or not trackers}
    routes = [route for route, name in found.items() if installed_version(name)]
    pinned_text(_text(_file(places)), [Pin(name, "0") for name in dict.fromkeys(found[route] for route in routes)])
    measurement = measure(load_fixture(), Options(routes=routes, timeout=timeout)) if routes else None
    return columns_of(measurement.result) if measurement is not None else []


def plan_update(
    columns: Sequence[Column], places: UpdatePlaces, *, trackers: Collection[str], keep: bool = False
) -> UpdatePlan:
    """Lay the new columns beside the pins, the committed table and the caller's own.

    Args:
        columns: What was measured.
        places: Where pins and table lie.
        trackers: Trackers to pin, as :func:`named_trackers` spells them; none means all that were measured.
        keep: Keep the pinned versions and renew only what was measured with them; else the highest version is pinned.

    Raises ``fidelity_pins_invalid`` when the file cannot be read, or not be renewed line by line.
    """
    file = _file(places)
    own = load_columns(places.table) if places.table.is_file() else []
    committed = load_columns(COMMITTED, validate=False)
    tables = (merge_columns([*committed, *own]), own, committed)
    wanted = [c for c in columns if not trackers or c["tracker"] in trackers]
    merged = merge_columns([*own, *wanted])
    pins: list[Pin] = []
    shown, left = {}, {}
    for tracker in dict.fromkeys([*trackers, *(c["tracker"] for c in wanted)]):
        before = file.pin(tracker) if file else None
        version = _version_to_pin(wanted, tracker, before, keep=keep)
        if version is not None:
            pins.append(Pin(tracker, version, digest_of(merged, tracker, version)))
            shown[tracker] = _shown(pins[-1], before, tables, wanted)
        elif reason := _why_left(wanted, tracker, before, keep=keep, named=tracker in trackers):
            left[tracker] = reason
    pinned_text(_text(file), pins)
    pinned = {pin.distribution for pin in pins}
    failed = [c for c in wanted if c["status"] != MEASURED and c["tracker"] not in pinned]
    return UpdatePlan(pins, shown, left, failed, merged)


def write_update(plan: UpdatePlan, places: UpdatePlaces) -> None:
    """Write table, page and pins together or not at all; the pins last, since they rest on the table.

    Raises ``fidelity_output_invalid``, and ``fidelity_pins_invalid`` as :func:`plan_update` does.
    """
    from .versions.page import versions_page

    texts = {places.table: dump_columns(plan.columns)}
    if places.page is not None:
        texts[places.page] = versions_page(plan.columns)
    texts[places.pins] = pinned_text(_text(_file(places)), plan.pins)
    write_together(texts)


def _version_to_pin(columns: Sequence[Column], tracker: str, before: Pin | None, *, keep: bool) -> str | None:
    versions = measured_versions(columns, tracker)
    if keep:
        versions = [v for v in versions if before and same_version(v, before.version)]
    # A version is pinned whole or not at all.
    broken = {c["version"] for c in columns if c["tracker"] == tracker and c["status"] != MEASURED}
    return versions[-1] if versions and versions[-1] not in broken else None


def _why_left(columns: Sequence[Column], tracker: str, before: Pin | None, *, keep: bool, named: bool) -> str | None:
    """Say why a tracker keeps its pin, or has none; None when its columns say so, or nobody asked for it."""
    if not any(c["tracker"] == tracker for c in columns):
        return "nothing was measured of it" if installed_version(tracker) else "it is not installed"
    if keep and before is None:
        return "it had no pin that could be kept" if named else None
    if keep and before and not any(same_version(before.version, v) for v in measured_versions(columns, tracker)):
        return f"the pinned {before.version} was not measured"
    return None


def _shown(pin: Pin, before: Pin | None, tables: Sequence[Sequence[Column]], new: Sequence[Column]) -> list[str]:
    """The lines about one pin; it is compared with the table that holds what was pinned, else with the first."""
    if before is None:
        return [f"{pin.distribution}: not pinned -> {pin.version}", "  nothing to compare with: it was not pinned"]
    lines = [f"{pin.distribution}: {before.version} -> {pin.version}"]
    if before.result == pin.result:
        return [*lines, "  the result is the pinned one"]
    every = [cells_of(columns, pin.distribution, before.version) for columns in tables]
    as_pinned = [cells for cells in every if cells and before.result in (None, result_digest(cells))]
    old = [*as_pinned, *every][0]
    if not old:
        return [*lines, f"  nothing to compare with: {before.version} is in no table"]
    if not as_pinned:
        lines.append(f"  what was pinned for {before.version} is not what the table says of it")
    cells = cells_of(new, pin.distribution, pin.version)
    lines += [f"  {route} was measured for one of the two only" for route in sorted(old.keys() ^ cells.keys())]
    return lines + (_in_words(told(route_changes(old, cells))) or ["  no cell differs"])


def _in_words(changes: Sequence[Told]) -> list[str]:
    """Return each change in words, and below it the cells behind it."""
    return [line for change in changes for line in (f"  {change.sentence}", *(f"    {n}" for n in change.numbers))]


def _route_trackers() -> dict[str, str]:
    """The tracker of each route."""
    from .routes import TRACKER_ROUTES, get_route

    return {route: get_route(route).distribution or "" for route in TRACKER_ROUTES}


def _file(places: UpdatePlaces) -> PinsFile | None:
    return load_pins(places.pins) if places.pins.is_file() else None


def _text(file: PinsFile | None) -> str:
    return file.text if file else ""
