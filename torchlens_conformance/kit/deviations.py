"""Known deviations: what a sink's author says does not hold, with a reason, a link and an expiry.

A list of them is held to account: an entry that is malformed, duplicate, expired, about a check that the profile does
not have, or about one that passed, is an error. A deviation lowers the verdict to with-deviations, never further up.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from ..protocol import Refusal
from .model import FAILED, PASSED, CheckResult
from .verdict import NEVER_EXCUSED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("deviation", "flaky")
"""``deviation`` always fails; ``flaky`` sometimes does, so it is not stale when it passes."""

_REQUIRED = {"check": str, "kind": str, "reason": str}
_OPTIONAL = {"link": str, "versions": str, "expires": date}


@dataclass(frozen=True, slots=True)
class Deviation:
    """One known deviation.

    Args:
        check: The id of the check that fails.
        kind: One of :data:`KINDS`.
        reason: Why, in a sentence.
        link: Where it is written down; an address, or empty.
        versions: The versions of the subject it is about (``>=2.20,<3``); empty for all.
        expires: The last day it holds, or None.
    """

    check: str
    kind: str
    reason: str
    link: str = ""
    versions: str = ""
    expires: date | None = None

    def applies(self, version: str | None) -> bool:
        """Whether the entry is about this version of the subject; an unknown version is taken to be in range."""
        if not self.versions or version is None:
            return True
        from packaging.specifiers import SpecifierSet

        return SpecifierSet(self.versions).contains(version, prereleases=True)


def read_deviations(path: Path) -> tuple[Deviation, ...]:
    """Read a TOML file of known deviations. Raises ``kit_deviations_invalid`` when it cannot be read or is malformed.

    The file has ``version = 1`` and one ``[[deviation]]`` table an entry with the fields of :class:`Deviation`.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _invalid(path, f"it cannot be read ({type(error).__name__}: {error})") from None
    entries = data.pop("deviation", [])
    if data.pop("version", None) != 1:
        raise _invalid(path, "it must begin with version = 1")
    if data or not isinstance(entries, list):
        raise _invalid(path, f"it holds only version and [[deviation]] tables, not {', '.join(sorted(data))}")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, 1))


def _entry(path: Path, number: int, entry: Any) -> Deviation:
    if not isinstance(entry, Mapping):
        raise _invalid(path, f"entry {number} is no table")
    known: dict[str, type] = {**_REQUIRED, **_OPTIONAL}
    unknown = sorted(set(entry) - set(known))
    missing = sorted(set(_REQUIRED) - set(entry))
    wrong = sorted(key for key, value in entry.items() if key in known and not isinstance(value, known[key]))
    for what, keys in (("has unknown keys", unknown), ("lacks", missing), ("has values of a wrong type:", wrong)):
        if keys:
            raise _invalid(path, f"entry {number} {what} {', '.join(keys)}")
    if entry["kind"] not in KINDS:
        raise _invalid(path, f"entry {number} has kind {entry['kind']!r}, not one of {', '.join(KINDS)}")
    if not entry["reason"].strip():
        raise _invalid(path, f"entry {number} has an empty reason")
    _require_versions(path, number, entry.get("versions", ""))
    return Deviation(**entry)


def _require_versions(path: Path, number: int, versions: str) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        raise _invalid(path, f"entry {number} has versions {versions!r}, which is no range like '>=2,<3'") from None


def _invalid(path: Path, what: str) -> Refusal:
    return Refusal(
        "kit_deviations_invalid",
        f"The list of known deviations {path.name} is not right: {what}.",
        remedy='Write version = 1 and [[deviation]] tables with check, kind = "deviation" or "flaky", and reason.',
        path=str(path),
    )


def excused(
    results: Sequence[CheckResult],
    deviations: Sequence[Deviation],
    *,
    version: str | None,
    profile: Collection[str],
    today: date,
    partial: bool = False,
) -> tuple[tuple[CheckResult, ...], list[str]]:
    """Mark the failures that are known deviations, and return what is wrong with the list, one sentence each.

    Args:
        results: What the checks said.
        deviations: The list.
        version: The subject's version, for entries about some versions only.
        profile: The check ids of the profile.
        today: Entries that expired before it are errors.
        partial: Whether only some checks ran; entries about the others are not stale then.
    """
    outcomes = {result.check: result.outcome for result in results}
    reasons: dict[str, str] = {}
    problems: list[str] = []
    seen: set[str] = set()
    for entry in deviations:
        if not entry.applies(version):
            continue
        problem = _problem(entry, outcomes, seen=seen, profile=profile, today=today, partial=partial)
        seen.add(entry.check)
        if problem:
            problems.append(problem)
        else:
            reasons[entry.check] = f"{entry.kind}: {entry.reason}"
    marked = tuple(
        replace(result, deviation=reasons[result.check])
        if result.outcome == FAILED and result.check in reasons
        else result
        for result in results
    )
    return marked, problems


def _problem(
    entry: Deviation,
    outcomes: Mapping[str, str],
    *,
    seen: set[str],
    profile: Collection[str],
    today: date,
    partial: bool,
) -> str | None:
    if entry.check not in profile:
        return f"{entry.check} is no check of the profile."
    if entry.check in NEVER_EXCUSED:
        return f"{entry.check} cannot be a known deviation, since a reader that does not read proves nothing."
    if entry.check in seen:
        return f"{entry.check} is listed twice."
    if entry.expires is not None and entry.expires < today:
        return f"the entry about {entry.check} expired on {entry.expires.isoformat()}."
    outcome = outcomes.get(entry.check)
    if outcome is None and partial:
        return None
    if outcome == PASSED and entry.kind == "deviation":
        return f"{entry.check} passed, so its entry is stale."
    if outcome not in (PASSED, FAILED):
        return f"{entry.check} was not executed ({outcome or 'no result'}), so its entry matches nothing."
    return None
