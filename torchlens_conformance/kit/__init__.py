"""The kit: certifies sinks of the tracker protocol, and proves itself before it does.

Nothing of it is imported before it is asked for, so that the pytest plugin costs nothing when it is not used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .certification import certification
    from .certify import certify
    from .model import Report
    from .subject import Subject

_LAZY = {
    "Report": "model",
    "Subject": "subject",
    "certification": "certification",
    "certify": "certify",
}

__all__ = ["Report", "Subject", "certification", "certify"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        # A submodule of the same name must not hide what was asked for.
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
