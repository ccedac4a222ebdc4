"""Checks: pure functions from transcripts to findings, each with an id and the clauses it stands for."""

from __future__ import annotations

from ...protocol import Refusal
from ..model import Check
from .delivery import DELIVERY_CHECKS
from .values import VALUE_CHECKS

CHECKS: tuple[Check, ...] = (*VALUE_CHECKS, *DELIVERY_CHECKS)
"""Every check, in the order of reports."""


def get_check(check_id: str) -> Check:
    """Return the check with this id; refuses ``kit_check_unknown``."""
    for check in CHECKS:
        if check.id == check_id:
            return check
    raise Refusal(
        "kit_check_unknown",
        f"There is no check {check_id!r}.",
        remedy="List the checks with `torchlens-conformance list`.",
        check=check_id,
    )


__all__ = ["CHECKS", "get_check"]
