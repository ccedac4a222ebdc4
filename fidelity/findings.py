"""Why a measured word differs from the published one: what was found out about each such cell, in words.

A sentence is tied to the measured word, so that it disappears when the measurement changes.
"""

from __future__ import annotations

from collections.abc import Mapping

_FINDINGS: Mapping[tuple[str, str, str], str] = {}


def finding(route: str, row: str, verdict: str) -> str:
    """Return the explanation of a differing cell, or a sentence that none is known yet."""
    return _FINDINGS.get((route, row, verdict), "Not explained yet.")
