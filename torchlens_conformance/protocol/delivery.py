"""Delivery states: how far a point is known to have come, and no further (PROT-8)."""

from __future__ import annotations

from dataclasses import dataclass

from .refusals import Refusal

DELIVERY_STATES = ("computed", "emitted", "relay_configured", "relay_verified")
"""The closed states, each claiming more than the one before (PROT-8)."""


@dataclass(frozen=True, slots=True)
class RelayState:
    """A delivery state with the evidence for it.

    Args:
        state: One of :data:`DELIVERY_STATES`.
        evidence: What was seen, in words; never empty.

    Raises ``point_field_invalid``. Clause: PROT-7, PROT-8.
    """

    state: str
    evidence: str

    def __post_init__(self) -> None:
        if self.state not in DELIVERY_STATES or not isinstance(self.evidence, str) or not self.evidence.strip():
            raise Refusal(
                "point_field_invalid",
                "A delivery state is one of the closed words and carries evidence.",
                remedy=f"Use one of {', '.join(DELIVERY_STATES)} and say what was seen.",
                state=self.state,
                evidence=self.evidence,
            )
