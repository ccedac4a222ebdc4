"""Callbacks for training frameworks: the framework's step, its logging cadence, and nothing hidden (CB-1, CB-2)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .configuration import CallbackSettings

if TYPE_CHECKING:
    from .huggingface import HFTrainerWatchCallback
    from .lightning import LightningWatchCallback

_LAZY = {"HFTrainerWatchCallback": "huggingface", "LightningWatchCallback": "lightning"}

__all__ = ["CallbackSettings", "HFTrainerWatchCallback", "LightningWatchCallback"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
