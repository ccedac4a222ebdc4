"""The reference engine: watch a training run, and emit what is seen as points of the protocol. Experimental.

Importing this package imports no torch; naming :func:`watch` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attach import watch
    from .op_grain.calibration import WatchOpGrainCostWarning
    from .plan import PlanReport
    from .report import CloseReport
    from .session import StepScope, WatchSession, WatchUnclosedWarning
    from .settings import WatchSettings
    from .skips import NamedSkip

_LAZY = {
    "CloseReport": "report",
    "NamedSkip": "skips",
    "PlanReport": "plan",
    "StepScope": "session",
    "WatchOpGrainCostWarning": "op_grain.calibration",
    "WatchSession": "session",
    "WatchSettings": "settings",
    "WatchUnclosedWarning": "session",
    "watch": "attach",
}

__all__ = [
    "CloseReport",
    "NamedSkip",
    "PlanReport",
    "StepScope",
    "WatchOpGrainCostWarning",
    "WatchSession",
    "WatchSettings",
    "WatchUnclosedWarning",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
