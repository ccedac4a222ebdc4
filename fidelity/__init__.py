"""The fidelity suite: real tensors through real trackers, their stores read back, and a table of what survived."""

from __future__ import annotations

from .pins_check import PinsReport, check_pins

__all__ = ["PinsReport", "check_pins"]
