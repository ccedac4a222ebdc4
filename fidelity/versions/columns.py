"""Columns of the table of versions: one tracker, one version, one route, all its cells (FID-1, FID-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from packaging.version import InvalidVersion, Version

from ..results import Result
from .significant import result_digest

Column: TypeAlias = dict[str, Any]
"""One column, as it stands in the file (see ``schemas/versions.schema.json``)."""

MEASURED = "measured"
"""The status of a column that has cells; every other status comes with a reason in ``detail``."""


def columns_of(result: Result) -> list[Column]:
    """Return the columns of a file of measured results; the controls have none.

    A void file, and a route whose package does not say its own version or was altered, give columns without cells that
    say why.
    """
    return [_column(result, route) for route in result["routes"] if route["tracker"] is not None]


def _column(result: Result, route: Mapping[str, Any]) -> Column:
    package: Mapping[str, Any] = route.get("package") or {}
    status, detail = route["status"], route["detail"]
    if status == MEASURED and result["void"]:
        status, detail = "void", "; ".join(result["void_reasons"])
    if status == MEASURED and package.get("reported") is None:
        status, detail = "unlabelled", "the file does not hold the version that the package itself reports"
    elif status == MEASURED and package["altered"]:
        status, detail = "unlabelled", f"files were altered after the installation: {', '.join(package['altered'])}"
    measured = status == MEASURED
    date = result["date"]
    environment = result["environment"]
    return {
        "tracker": route["tracker"],
        "version": package.get("reported") or route["version"],
        "route": route["id"],
        "title": route["title"],
        "status": status,
        "detail": detail,
        "date": date,
        "moment": result.get("moment") or f"{date}T00:00:00+00:00",
        "seconds": route["seconds"],
        "kit_version": result["kit_version"],
        "sent_digest": result["tensors"]["sent_digest"],
        "code": route.get("code"),
        "package": package or None,
        "environment": {
            "name": environment.get("name"),
            "python": environment["python"],
            "platform": environment["platform"],
            "versions": environment["versions"],
        },
        "stale": [],
        "cells": [
            {"id": row["id"], "grid": row["grid"], "verdict": row["verdict"], "date": date, "numbers": row["numbers"]}
            for row in (route["rows"] if measured else ())
        ],
    }


def absent_column(tracker: str, version: str, route: str, title: str, *, reason: str, environment: str) -> Column:
    """Return a column for a version that was to be measured and left no file."""
    return {
        "tracker": tracker,
        "version": version,
        "route": route,
        "title": title,
        "status": "absent",
        "detail": reason,
        "date": None,
        "moment": None,
        "seconds": 0.0,
        "kit_version": None,
        "sent_digest": None,
        "code": None,
        "package": None,
        "environment": {"name": environment, "python": None, "platform": None, "versions": {}},
        "stale": [],
        "cells": [],
    }


@lru_cache(maxsize=4096)
def version_key(version: str | None) -> tuple[bool, Version, str]:
    """Return what versions are ordered by; a text that is no version comes first."""
    try:
        return True, Version(version or ""), ""
    except InvalidVersion:
        return False, Version("0"), version or ""


def measured_versions(columns: Iterable[Column], tracker: str) -> list[str]:
    """Return the versions of a tracker of which at least one route is measured, the oldest first."""
    found = {c["version"] for c in columns if c["tracker"] == tracker and c["status"] == MEASURED}
    return sorted(found, key=version_key)


def cells_of(columns: Iterable[Column], tracker: str, version: str) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the measured cells of one version of a tracker by route id."""
    return {
        c["route"]: c["cells"]
        for c in columns
        if c["tracker"] == tracker and c["status"] == MEASURED and same_version(c["version"], version)
    }


def digest_of(columns: Iterable[Column], tracker: str, version: str) -> str | None:
    """Return the result digest of one version of a tracker, or None when nothing of it is measured."""
    cells = cells_of(columns, tracker, version)
    return result_digest(cells) if cells else None


def same_version(one: str, other: str) -> bool:
    """Return whether two versions are the same; 2.6 is 2.6.0, and a local label such as +cpu does not count."""
    return version_key(one.split("+")[0]) == version_key(other.split("+")[0])
