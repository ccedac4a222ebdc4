"""The badge of a report, in the usual endpoint JSON of badge services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .report_kinds import kind_of

COLOURS = {
    "conformant": "brightgreen",
    "with-deviations": "yellow",
    "nonconformant": "red",
    "incomplete": "lightgrey",
    "void": "lightgrey",
}


def badge(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``schemaVersion``, ``label``, ``message`` and ``color`` for a report document."""
    counts = document["checks"]
    subject = kind_of(document).subject
    # The profile of an engine says so itself.
    profile = document["profile"]["id"].removeprefix(f"{subject}-")
    message = f"{document['verdict']} ({counts['passed']}/{counts['expected']})"
    return {
        "color": COLOURS[document["verdict"]],
        "label": f"torchlens {subject} {profile}",
        "message": message,
        "schemaVersion": 1,
    }
