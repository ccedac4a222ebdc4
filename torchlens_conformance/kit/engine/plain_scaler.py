"""What the plain engine reads of a gradient scaler. Clause: AMP-1..8."""

from __future__ import annotations

from math import frexp
from typing import Any

from ...protocol import Refusal


class ScalerWatch:
    """The scaler of one step, read and never changed.

    Args:
        scaler: The scaler, or None.

    Attributes:
        scale: The scale when the step opened, or None; a disabled scaler's is 1.0 (AMP-5).
    """

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler
        enabled = getattr(scaler, "is_enabled", lambda: scaler is not None)()
        self.enabled = scaler is not None and bool(enabled)
        self.scale: float | None = None
        if scaler is not None:
            self.scale = float(scaler.get_scale()) if self.enabled else 1.0
        # update() replaces this dictionary; the old one still tells what became of the step (AMP-8).
        self.records = getattr(scaler, "_per_optimizer_states", None) if self.enabled else None
        self.found = False

    def require_power_of_two(self) -> None:
        """Refuse ``tracker_scale_invalid`` for a scale that nothing exact follows from. Clause: AMP-3."""
        if self.records is not None and (self.scale is None or self.scale <= 0 or frexp(self.scale)[0] != 0.5):
            raise Refusal(
                "tracker_scale_invalid",
                "The scale is no power of two.",
                remedy="Use a power of two.",
                scale=self.scale,
            )

    def factor(self, optimizer: Any) -> float | None:
        """Return the factor that is still in the gradients at the boundary, or None. Clause: AMP-2..4, AMP-7."""
        carried = getattr(optimizer, "grad_scale", None)
        if carried is not None:
            return float(carried)
        if self.records is None or self.stage(optimizer) != "READY":
            return None
        return self.scale

    def overflowed(self, optimizer: Any) -> bool:
        """Say whether an optimizer that unscales by itself is about to leave its step out. Clause: AMP-7."""
        infinite = getattr(optimizer, "found_inf", None)
        self.found |= infinite is not None and bool(infinite)
        return infinite is not None and bool(infinite)

    def stage(self, optimizer: Any) -> str:
        """Return the scaler's stage of an optimizer."""
        record = self.records.get(id(optimizer)) if self.records is not None else None
        return "READY" if record is None else str(record["stage"].name)

    def backward_factor(self) -> float | None:
        """Return the scale that gradients carry in a backward, whatever the optimizer does later, or None."""
        return None if self.records is None else self.scale

    def left_out(self, optimizer: Any) -> bool:
        """Say whether the scaler was asked to step an optimizer that then did not. Clause: AMP-6, AMP-8."""
        return self.found or self.stage(optimizer) == "STEPPED"

    def skipped(self) -> bool:
        """Say whether the scaler left a step out, asked when no boundary was seen. Clause: AMP-8."""
        return self.found or any(record["stage"].name == "STEPPED" for record in (self.records or {}).values())
