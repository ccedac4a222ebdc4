"""The engine kit: the laws of the specification as properties that judge any engine.

An engine is examined through an adapter (:mod:`.adapter`). Scenarios drive it and observe, laws judge the observations,
and every run first shows that a plain engine passes and that planted defects are caught. Nothing here imports torch
before a scenario runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapter import ABILITIES, Ask, Engine, Session, Spellings
    from .examine import examine
    from .laws import LAWS

__all__ = ["ABILITIES", "LAWS", "Ask", "Engine", "Session", "Spellings", "examine"]

_HOMES = {
    "ABILITIES": "adapter",
    "Ask": "adapter",
    "Engine": "adapter",
    "LAWS": "laws",
    "Session": "adapter",
    "Spellings": "adapter",
    "examine": "examine",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
