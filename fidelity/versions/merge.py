"""Many measured files become one table (FID-3). The same files in any order, or merged twice, give the same table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from torchlens_conformance.protocol import Refusal, encode_value

from .columns import MEASURED, Column, absent_column, same_version, version_key

STALE_DAYS = 90
"""A cell older than the newest one by more days is stale.

A released version of a tracker does not change, but what it is installed with does (protobuf, numpy, torch), and so
does the kit; within a quarter of a year all of them have had releases.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """One version that was to be measured.

    Args:
        environment: The name of the environment, as it stands in measured files.
        tracker: The tracker's distribution.
        version: The version that was asked for.
        routes: Route ids with their titles.
        reason: Why there is no file, where that is known.
    """

    environment: str
    tracker: str
    version: str
    routes: Mapping[str, str]
    reason: str | None = None


def merge_columns(columns: Iterable[Column], *, expected: Sequence[Expected] = ()) -> list[Column]:
    """Return one column for each tracker, version and route, sorted, with stale ones marked.

    Of several columns of one place a measured one wins, then the newest. What was expected and left nothing gets a
    column that says so.

    Raises ``fidelity_versions_alike`` when two versions were measured with equal files: one of them is not what it is
    called. Clause: FID-3.
    """
    given = list(columns)
    best: dict[tuple[Any, ...], Column] = {}
    for column in given:
        if column["version"] is not None:
            key = (column["tracker"], version_key(column["version"]), column["route"])
            best[key] = _better(column, best[key]) if key in best else column
    chosen = list(best.values())
    _refuse_alike(given)
    chosen += _absent(chosen, given, expected)
    chosen.sort(key=lambda c: (c["tracker"].lower(), c["route"], version_key(c["version"])))
    return mark_stale(chosen)


def mark_stale(columns: Sequence[Column]) -> list[Column]:
    """Return the columns with the reasons why each is stale beside the newest ones; none means that it is not."""
    measured = sorted((c for c in columns if c["status"] == MEASURED), key=lambda c: str(c["moment"]))
    newest_of_route = {column["route"]: column for column in measured}
    return [
        {**c, "stale": _stale(c, measured[-1], newest_of_route[c["route"]]) if c["status"] == MEASURED else []}
        for c in columns
    ]


def _stale(column: Column, newest: Column, newest_of_route: Column) -> list[str]:
    reasons = []
    days = (date.fromisoformat(newest["date"]) - date.fromisoformat(column["date"])).days
    if days > STALE_DAYS:
        reasons.append(f"measured {days} days before the newest cell")
    if column["sent_digest"] != newest["sent_digest"]:
        reasons.append("other points were sent")
    if column["kit_version"] != newest["kit_version"]:
        reasons.append(f"measured with kit {column['kit_version']}, the newest with {newest['kit_version']}")
    if column["code"] != newest_of_route["code"]:
        reasons.append("measured by other code of this route than the newest version")
    return reasons


def _better(one: Column, other: Column) -> Column:
    ranks = [(column["status"] == MEASURED, column["moment"] or "") for column in (one, other)]
    if ranks[0] == ranks[1]:
        # The text breaks a tie, so that the order of the files does not matter.
        return max(one, other, key=lambda c: json.dumps(encode_value({**c, "stale": []}), sort_keys=True))
    return one if ranks[0] > ranks[1] else other


def _refuse_alike(columns: Sequence[Column]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for column in columns:
        if column["status"] != MEASURED or not column["package"]:
            continue
        tracker, version, digest = column["tracker"], column["version"], column["package"]["digest"]
        other = seen.setdefault((tracker, digest), version)
        if not same_version(other, version):
            first, second = sorted((other, version), key=version_key)
            raise Refusal(
                "fidelity_versions_alike",
                f"{tracker} {first} and {second} were measured with equal files.",
                remedy="One of the two is not the version it is called; install each into an environment of its own.",
                tracker=tracker,
                versions=[first, second],
                digest=digest,
            )


def _absent(chosen: Sequence[Column], given: Sequence[Column], expected: Sequence[Expected]) -> list[Column]:
    absent = []
    for wish in expected:
        there = {
            c["route"] for c in chosen if c["tracker"] == wish.tracker and same_version(c["version"], wish.version)
        }
        missing = {route: title for route, title in wish.routes.items() if route not in there}
        reason = _why_absent(given, wish) if missing else ""
        absent += [
            absent_column(wish.tracker, wish.version, route, title, reason=reason, environment=wish.environment)
            for route, title in missing.items()
        ]
    return absent


def _why_absent(given: Sequence[Column], wish: Expected) -> str:
    """Say why a version has no column: another version was there, the tracker was missing, or there is no file."""
    files = [c for c in given if c["environment"]["name"] == wish.environment and c["tracker"] == wish.tracker]
    others = sorted({c["version"] for c in files if c["version"] and not same_version(c["version"], wish.version)})
    if others:
        return f"the environment {wish.environment} has version {', '.join(others)}"
    if files:
        return f"{files[0]['status']}: {files[0]['detail']}"
    return wish.reason or f"the environment {wish.environment} left no file"
