"""Small measured files and columns, made by hand, for tests of the table of versions."""

from __future__ import annotations

import hashlib
from typing import Any

from fidelity.results import SCHEMA
from fidelity.versions.columns import Column, columns_of

SENT = "a" * 64


def cell(row: str = "scalars", *, word: str = "exact", grid: str | None = None, **numbers: Any) -> dict[str, Any]:
    """A row of a measured file."""
    return {
        "id": row,
        "grid": grid,
        "verdict": word,
        "numbers": {"sent": 3, "arrived": 3, "notices": 0, **numbers},
        "published": None,
        "differs": False,
        "evidence": [],
    }


def measured_file(
    version: str | None = "0.30.0",
    *cells: dict[str, Any],
    tracker: str = "wandb",
    route: str = "wandb-relay",
    moment: str = "2026-11-29T10:00:00+00:00",
    status: str = "measured",
    detail: str = "",
    code: str = "c" * 64,
    sent: str = SENT,
    kit: str = "0.1.0",
    environment: str | None = None,
    reported: str | None = "",
    files: str | None = None,
    altered: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A file of measured results with one route."""
    reported = version if reported == "" else reported
    digest = files or hashlib.sha256(f"{tracker} {version}".encode()).hexdigest()
    package = {"reported": reported, "digest": digest, "files": 9, "altered": list(altered)}
    return {
        "schema": SCHEMA,
        "date": moment[:10],
        "moment": moment,
        "kit_version": kit,
        "tensors": {
            "source": "seeded",
            "description": "by hand",
            "seed": 1,
            "digest": "d" * 64,
            "sent_digest": sent,
            "replayed": True,
            "tensors": 1,
            "elements": 1,
            "steps": [100],
            "grids": ["uniform-64"],
        },
        "environment": {
            "python": "3.11.7",
            "platform": "Linux x86_64",
            "versions": {"torch": "2.13.0"},
            "pins_differ": [],
            "histogram_wire": "default",
            "scalar_form": "default",
            "name": environment,
        },
        "void": False,
        "void_reasons": [],
        "incomplete": [],
        "published_source": "",
        "routes": [
            {
                "id": route,
                "title": route,
                "tracker": tracker,
                "version": version,
                "status": status,
                "detail": detail,
                "seconds": 1.5,
                "package": package if status == "measured" else None,
                "code": code,
                "rows": list(cells) or [cell()],
            }
        ],
    }


def column(*arguments: Any, **settings: Any) -> Column:
    """The column of :func:`measured_file` with the same arguments."""
    (found,) = columns_of(measured_file(*arguments, **settings))
    return found
