"""What is installed, beside what is pinned and what is measured (FID-3). No tracker and no torch is imported here."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from torchlens_conformance.protocol import Refusal

from .identity import FilesDigest, read_files, recorded_files
from .losses import USES, losses
from .pins import PinsFile, installed_version, load_pins, tracker_named
from .verdicts import NOT_MEASURED
from .versions.changes import neighbours, route_changes
from .versions.columns import MEASURED, Column, cells_of, digest_of, measured_versions, same_version
from .versions.merge import merge_columns
from .versions.significant import Cell, CellChange, cell_count, result_digest
from .versions.store import COMMITTED, load_columns
from .versions.told import told

REPORT_SCHEMA = "torchlens-conformance.pins-check.v1"
"""The name and version of the report's format (``schemas/pins-check.schema.json``)."""

CERTIFIED = "certified"
WITH_LOSSES = "measured-with-losses"
UNMEASURED = "unmeasured"
CHANGED = "changed"
NOT_INSTALLED = "not installed"
STATUSES = (CERTIFIED, WITH_LOSSES, UNMEASURED, CHANGED, NOT_INSTALLED)
"""The closed words for a tracker."""

FilesReader: TypeAlias = Callable[[str], "FilesDigest | None"]
"""From a distribution's name to the digest of its files."""


@dataclass(frozen=True, slots=True)
class TrackerStatus:
    """What is known about one installed tracker.

    Args:
        tracker: The distribution.
        word: One of :data:`STATUSES`.
        installed: The installed version, or None.
        pinned: The pinned version, or None.
        below: The nearest measured version below an unmeasured one.
        above: The nearest measured version above it.
        losses: What does not survive, in sentences, by route.
        changes: Cells that differ: from the pinned version, or between the two neighbours of an unmeasured one.
        notes: What else a person should know.
    """

    tracker: str
    word: str
    installed: str | None
    pinned: str | None
    below: str | None = None
    above: str | None = None
    losses: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changes: Sequence[CellChange] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PinsReport:
    """The answer of :func:`check_pins`.

    Args:
        trackers: One status for each tracker.
        exit_code: 0 as pinned and measured, 1 something is changed, unmeasured, or not good enough, 2 nothing to check.
    """

    trackers: Sequence[TrackerStatus]
    exit_code: int

    def as_dict(self) -> dict[str, Any]:
        """Return the report for programs; it validates against ``schemas/pins-check.schema.json``."""
        return {
            "schema": REPORT_SCHEMA,
            "exit_code": self.exit_code,
            "trackers": [
                {
                    "tracker": status.tracker,
                    "word": status.word,
                    "installed": status.installed,
                    "pinned": status.pinned,
                    "below": status.below,
                    "above": status.above,
                    "losses": {route: list(lines) for route, lines in status.losses.items()},
                    "changes": [str(change) for change in status.changes],
                    "notes": list(status.notes),
                }
                for status in self.trackers
            ],
        }

    def format(self) -> str:
        """Return the report for people."""
        return "\n".join(line for status in self.trackers for line in _lines(status)) or "No tracker is measured."


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns, and the routes that matter to the caller."""

    columns: Sequence[Column]
    routes: Collection[str]

    def cells(self, tracker: str, version: str) -> dict[str, Sequence[Cell]]:
        """The measured cells of the routes that matter, by route."""
        found = cells_of(self.columns, tracker, version)
        return {route: cells for route, cells in found.items() if route in self.routes}

    def wanted(self, tracker: str) -> list[Column]:
        """The columns of a tracker that matter."""
        return [c for c in self.columns if c["tracker"] == tracker and c["route"] in self.routes]

    def of_version(self, tracker: str, version: str) -> list[Column]:
        """Those of one version."""
        return [c for c in self.wanted(tracker) if same_version(c["version"], version)]


def check_pins(
    *,
    pins: Path | None = None,
    tables: Sequence[Path] = (),
    trackers: Collection[str] = (),
    uses: Collection[str] = (),
    strict: bool = False,
    contents: bool = False,
) -> PinsReport:
    """Say for each tracker whether what is installed is what is pinned and measured, and what it loses.

    Takes a fraction of a second, reads files only and imports no tracker: it can be called at the start of a run.

    Args:
        pins: A constraints file; None for the project's own.
        tables: Further tables of versions, beside the committed one.
        trackers: Distributions to look at; a named one that is not installed counts as a failure. None means all.
            Names are compared as PEP 503 says.
        uses: Routes (``wandb-relay``) or the names of how they are used (``sync_tensorboard``) that matter to you.
        strict: Whether losses count as a failure.
        contents: Whether to read the packages' files, which finds edited ones and takes up to half a second for each
            tracker; else the digests are taken that the installer noted.

    Raises ``fidelity_pins_invalid``, ``fidelity_result_invalid``, ``fidelity_tracker_unknown`` and, for a use that is
    unknown or none of a tracker's that is named, ``fidelity_route_unknown``. Clause: FID-3.
    """
    file = load_pins(pins)
    columns = load_columns(COMMITTED, validate=False)
    if tables:
        columns = merge_columns([*columns, *(c for path in tables for c in load_columns(path))])
    every = sorted({c["tracker"] for c in columns}, key=str.lower)
    named = list(dict.fromkeys(tracker_named(name, every) for name in trackers))
    table = _Table(columns, wanted_routes(columns, named, uses))
    known = named or [name for name in every if table.wanted(name)]
    digest = read_files if contents else recorded_files
    found = [_status(name, file, table, digest) for name in known]
    return PinsReport(found, _exit_code(found, named=bool(named), strict=strict))


def wanted_routes(columns: Sequence[Column], trackers: Collection[str], uses: Collection[str]) -> set[str]:
    """Return the ids of the routes that ``uses`` names; every measured one when it names none.

    Args:
        columns: The columns of the table.
        trackers: The trackers that were named, as the table spells them; none means all.
        uses: Ids of routes, or names of how they are used.

    Raises ``fidelity_route_unknown`` for a name that is none, for one that is no route of a named tracker, and for a
    named tracker that has no route among them.
    """
    tracker_of = {c["route"]: c["tracker"] for c in columns}
    names = {route: {route, USES.get(route, route)} for route in tracker_of}
    if not uses:
        return set(names)
    wanted = {route for route, called in names.items() if called & set(uses)}
    own = {name for route, called in names.items() if not trackers or tracker_of[route] in trackers for name in called}
    for use in uses:
        if not any(use in called for called in names.values()):
            raise _refused_use(f"No route or use is called {use!r}.", own, use=use)
    for tracker in trackers:
        if tracker not in {tracker_of[route] for route in wanted}:
            called = {name for route in names if tracker_of[route] == tracker for name in names[route]}
            message = f"{tracker} has no route or use that is called {', '.join(uses)}."
            raise _refused_use(message, called, tracker=tracker, uses=list(uses))
    for use in uses:
        if use not in own:
            raise _refused_use(f"{use} is no use of {', '.join(trackers)}.", own, use=use, trackers=list(trackers))
    return wanted


def _refused_use(message: str, names: Collection[str], **fields: object) -> Refusal:
    remedy = f"Use one of {', '.join(sorted(names, key=str.lower))}."
    return Refusal("fidelity_route_unknown", message, remedy=remedy, **fields)


def _exit_code(found: Sequence[TrackerStatus], *, named: bool, strict: bool) -> int:
    failing = {UNMEASURED, CHANGED} | ({WITH_LOSSES} if strict else set()) | ({NOT_INSTALLED} if named else set())
    if all(status.word == NOT_INSTALLED for status in found) and not named:
        return 2
    return int(any(status.word in failing for status in found))


def _status(tracker: str, file: PinsFile, table: _Table, digest: FilesReader) -> TrackerStatus:
    installed = installed_version(tracker)
    pin = file.pin(tracker)
    pinned = pin.version if pin else None
    if installed is None:
        return TrackerStatus(tracker, NOT_INSTALLED, None, pinned)
    cells = table.cells(tracker, installed)
    if not cells:
        return _unmeasured(tracker, installed, pinned, table)
    changes, notes = _against_pin(tracker, installed, file, table, cells)
    altered = _other_files(tracker, installed, table.columns, digest)
    if altered:
        notes = [altered, *notes]
    in_vain, lacking = _in_vain(tracker, installed, table), _lacking(cells)
    lost = {route: losses(found, route=route) for route, found in cells.items()}
    lost = {route: lines for route, lines in lost.items() if lines}
    changed = changes is not None or altered is not None
    # What is known of one route says nothing about another one, and a row that was left out certifies nothing.
    unknown = in_vain or (lacking and not lost)
    word = CHANGED if changed else UNMEASURED if unknown else WITH_LOSSES if lost else CERTIFIED
    below, above = _nearest(tracker, installed, table) if word == UNMEASURED else (None, None)
    notes = [*notes, *in_vain, *lacking]
    return TrackerStatus(tracker, word, installed, pinned, below, above, lost, changes or (), notes)


def _unmeasured(tracker: str, installed: str, pinned: str | None, table: _Table) -> TrackerStatus:
    below, above = _nearest(tracker, installed, table)
    changes: Sequence[CellChange] = ()
    notes = []
    if below and above:
        changes = route_changes(table.cells(tracker, below), table.cells(tracker, above))
        notes.append(
            f"Between {below} and {above} {cell_count(len(changes))} changed."
            if changes
            else f"{below} and {above} do the same in every measured cell; that does not say what {installed} does."
        )
    notes += _in_vain(tracker, installed, table)
    return TrackerStatus(
        tracker, UNMEASURED, installed, pinned, below=below, above=above, changes=changes, notes=tuple(notes)
    )


def _nearest(tracker: str, version: str, table: _Table) -> tuple[str | None, str | None]:
    return neighbours(measured_versions(table.wanted(tracker), tracker), version)


def _in_vain(tracker: str, version: str, table: _Table) -> list[str]:
    """Say which routes could not be measured at this version, and why."""
    tried = [c for c in table.of_version(tracker, version) if c["status"] != MEASURED]
    return [f"{c['route']} could not be measured, {c['status']}: {c['detail']}" for c in tried]


def _lacking(cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Say which rows of measured routes were left out."""
    rows = {
        route: dict.fromkeys(cell["id"] for cell in found if cell["verdict"] == NOT_MEASURED)
        for route, found in cells.items()
    }
    return [f"{route}: {', '.join(left_out)} was not measured." for route, left_out in rows.items() if left_out]


def _against_pin(
    tracker: str, installed: str, file: PinsFile, table: _Table, cells: Mapping[str, Sequence[Cell]]
) -> tuple[Sequence[CellChange] | None, list[str]]:
    """The cells that differ from the pinned version (None: nothing changed), and notes."""
    pin = file.pin(tracker)
    stale = [c for c in table.of_version(tracker, installed) if c["stale"]]
    notes = [f"{c['route']} is stale: {'; '.join(c['stale'])}." for c in stale]
    if pin is None:
        return None, [*notes, file.why_unpinned(tracker)]
    if not same_version(pin.version, installed):
        notes.append(f"Pinned is {pin.version}.")
    if pin.result is not None and digest_of(table.columns, tracker, installed) == pin.result:
        return None, notes
    before = cells_of(table.columns, tracker, pin.version)
    as_pinned = pin.result is None or (bool(before) and result_digest(before) == pin.result)
    if not as_pinned:
        notes.append(f"What was pinned for {pin.version} is not what the table says; run `fidelity pins update`.")
    elif not before:
        notes.append(f"The pinned {pin.version} is not measured, so nothing can be compared.")
    changes = route_changes(table.cells(tracker, pin.version), cells)
    return (changes if changes or not as_pinned or not before else None), notes


def _other_files(tracker: str, installed: str, columns: Sequence[Column], digest: FilesReader) -> str | None:
    """Say so when the installed files are not those that were measured on the same platform."""
    here = digest(tracker)
    measured = [
        c for c in columns if c["tracker"] == tracker and c["package"] and same_version(c["version"], installed)
    ]
    same_platform = [c for c in measured if c["environment"]["platform"] == f"{platform.system()} {platform.machine()}"]
    if here is None or not same_platform or any(c["package"]["digest"] == here.digest for c in same_platform):
        return None
    return f"The files of {tracker} {installed} are not those that were measured under this version."


def _lines(status: TrackerStatus) -> list[str]:
    version = f" {status.installed}" if status.installed else ""
    lines = [f"{status.tracker}{version}: {status.word}"]
    if status.word == UNMEASURED:
        nearest = [f"{status.below} below" if status.below else "", f"{status.above} above" if status.above else ""]
        lines.append(f"  nearest measured versions: {', '.join(filter(None, nearest)) or 'none'}")
    lines += [f"  {note}" for note in status.notes]
    lines += [f"  differs: {change.sentence}" for change in told(status.changes)]
    for route, sentences in status.losses.items():
        use = USES.get(route)
        lines.append(f"  {route}{f' ({use})' if use else ''} loses:")
        lines += [f"    - {sentence}" for sentence in sentences]
    return lines
