"""What is installed, beside what is pinned and what is measured (FID-3). No tracker and no torch is imported here."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from .identity import FilesDigest, read_files, recorded_files
from .losses import USES, losses
from .pins import Pin, installed_version, read_pins
from .versions.changes import neighbours, route_changes
from .versions.columns import Column, cells_of, digest_of, measured_versions, same_version
from .versions.merge import merge_columns
from .versions.significant import Cell, CellChange, cell_count, result_digest
from .versions.store import COMMITTED, load_columns

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
        return "\n".join(line for status in self.trackers for line in _lines(status))


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
        uses: Routes (``wandb-relay``) or the names of how they are used (``sync_tensorboard``) that matter to you.
        strict: Whether losses count as a failure.
        contents: Whether to read the packages' files, which finds edited ones and takes up to half a second for each
            tracker; else the digests are taken that the installer noted.

    Raises ``fidelity_pins_invalid`` and ``fidelity_result_invalid``. Clause: FID-3.
    """
    pinned = {pin.distribution: pin for pin in read_pins(pins)}
    columns = load_columns(COMMITTED, validate=False)
    if tables:
        columns = merge_columns([*columns, *(c for path in tables for c in load_columns(path, validate=False))])
    wanted = [c for c in columns if not uses or {c["route"], USES.get(c["route"])} & set(uses)]
    known = dict.fromkeys([*trackers] or sorted({c["tracker"] for c in wanted}, key=str.lower))
    routes = {c["route"] for c in wanted}
    digest = read_files if contents else recorded_files
    found = [_status(name, pinned.get(name), columns, routes, digest) for name in known]
    return PinsReport(found, _exit_code(found, named=bool(trackers), strict=strict))


def _exit_code(found: Sequence[TrackerStatus], *, named: bool, strict: bool) -> int:
    failing = {UNMEASURED, CHANGED} | ({WITH_LOSSES} if strict else set()) | ({NOT_INSTALLED} if named else set())
    if all(status.word == NOT_INSTALLED for status in found) and not named:
        return 2
    return int(any(status.word in failing for status in found))


def _status(
    tracker: str, pin: Pin | None, columns: Sequence[Column], routes: Collection[str], digest: FilesReader
) -> TrackerStatus:
    installed = installed_version(tracker)
    pinned = pin.version if pin else None
    if installed is None:
        return TrackerStatus(tracker, NOT_INSTALLED, None, pinned)
    cells = _kept(cells_of(columns, tracker, installed), routes)
    if not cells:
        return _unmeasured(tracker, installed, pinned, columns, routes)
    changes, notes = _against_pin(tracker, installed, pin, columns, cells, routes)
    altered = _other_files(tracker, installed, columns, digest)
    if altered:
        notes = [altered, *notes]
    lost = {route: losses(found) for route, found in cells.items()}
    lost = {route: lines for route, lines in lost.items() if lines}
    changed = changes is not None or altered is not None
    word = CHANGED if changed else WITH_LOSSES if lost else CERTIFIED
    return TrackerStatus(tracker, word, installed, pinned, losses=lost, changes=changes or (), notes=notes)


def _unmeasured(
    tracker: str, installed: str, pinned: str | None, columns: Sequence[Column], routes: Collection[str]
) -> TrackerStatus:
    below, above = neighbours(measured_versions(columns, tracker), installed)
    changes: Sequence[CellChange] = ()
    notes = []
    if below and above:
        changes = route_changes(*(_kept(cells_of(columns, tracker, version), routes) for version in (below, above)))
        notes.append(
            f"Between {below} and {above} {cell_count(len(changes))} changed."
            if changes
            else f"{below} and {above} do the same in every measured cell; that does not say what {installed} does."
        )
    tried = [c for c in columns if c["tracker"] == tracker and same_version(c["version"], installed)]
    notes += [f"{c['route']} could not be measured, {c['status']}: {c['detail']}" for c in tried]
    return TrackerStatus(
        tracker, UNMEASURED, installed, pinned, below=below, above=above, changes=changes, notes=tuple(notes)
    )


def _against_pin(
    tracker: str,
    installed: str,
    pin: Pin | None,
    columns: Sequence[Column],
    cells: Mapping[str, Sequence[Cell]],
    routes: Collection[str],
) -> tuple[Sequence[CellChange] | None, list[str]]:
    """The cells that differ from the pinned version (None: nothing changed), and notes."""
    notes = [f"{c['route']} is stale: {'; '.join(c['stale'])}." for c in columns if _is_stale(c, tracker, installed)]
    if pin is None:
        return None, [*notes, "It is not pinned."]
    if not same_version(pin.version, installed):
        notes.append(f"Pinned is {pin.version}.")
    if pin.result is not None and digest_of(columns, tracker, installed) == pin.result:
        return None, notes
    before = cells_of(columns, tracker, pin.version)
    as_pinned = pin.result is None or (bool(before) and result_digest(before) == pin.result)
    if not as_pinned:
        notes.append(f"What was pinned for {pin.version} is not what the table says; run `fidelity pins update`.")
    elif not before:
        notes.append(f"The pinned {pin.version} is not measured, so nothing can be compared.")
    changes = route_changes(_kept(before, routes), cells)
    return (changes if changes or not as_pinned or not before else None), notes


def _is_stale(column: Column, tracker: str, version: str) -> bool:
    return bool(column["stale"]) and column["tracker"] == tracker and same_version(column["version"], version)


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


def _kept(cells: Mapping[str, Sequence[Cell]], routes: Collection[str]) -> dict[str, Sequence[Cell]]:
    return {route: found for route, found in cells.items() if route in routes}


def _lines(status: TrackerStatus) -> list[str]:
    version = f" {status.installed}" if status.installed else ""
    lines = [f"{status.tracker}{version}: {status.word}"]
    if status.word == UNMEASURED:
        nearest = [f"{status.below} below" if status.below else "", f"{status.above} above" if status.above else ""]
        lines.append(f"  nearest measured versions: {', '.join(filter(None, nearest)) or 'none'}")
    lines += [f"  {note}" for note in status.notes]
    lines += [f"  differs: {change}" for change in status.changes]
    for route, sentences in status.losses.items():
        use = USES.get(route)
        lines.append(f"  {route}{f' ({use})' if use else ''} loses:")
        lines += [f"    - {sentence}" for sentence in sentences]
    return lines
