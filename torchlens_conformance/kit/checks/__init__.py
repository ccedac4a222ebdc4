"""Checks: pure functions from transcripts to findings, each with an id and the clauses it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...protocol import Refusal
from ..model import Check, Transcript
from .delivery import DELIVERY_CHECKS
from .ending import ENDING_CHECKS
from .reading import READING_CHECKS
from .sharing import SHARING_CHECKS
from .surface import SURFACE_CHECKS, preflight_not_applicable
from .surviving import SURVIVING_CHECKS
from .values import VALUE_CHECKS

CHECKS: tuple[Check, ...] = (
    *SURFACE_CHECKS[:4],
    *VALUE_CHECKS,
    *DELIVERY_CHECKS,
    *SURFACE_CHECKS[4:],
    *ENDING_CHECKS,
    *SURVIVING_CHECKS,
    *SHARING_CHECKS,
    *READING_CHECKS,
)
"""Every check, in the order of reports."""

NOT_APPLICABLE_WHEN: Mapping[str, Callable[[Mapping[str, Transcript]], str | None]] = MappingProxyType(
    {"surface.preflight": preflight_not_applicable}
)
"""For checks that need not apply: from transcripts to the reason why one does not, or None."""


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


__all__ = ["CHECKS", "NOT_APPLICABLE_WHEN", "get_check"]
