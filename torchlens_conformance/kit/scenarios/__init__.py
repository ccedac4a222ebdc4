"""Scenarios: each drives a subject through one situation in child processes and returns a transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..model import Transcript
from .driving import Setting
from .writing import changes, close_only, fresh, order, round_trip, tags

SCENARIOS: Mapping[str, Callable[[Setting], Transcript]] = MappingProxyType(
    {
        "round-trip": round_trip,
        "order": order,
        "tags": tags,
        "close-only": close_only,
        "fresh": fresh,
        "changes": changes,
    }
)
"""Every scenario by id, in the order they are run."""

__all__ = ["SCENARIOS", "Setting"]
