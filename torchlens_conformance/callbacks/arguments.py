"""What callbacks are given, checked when they are made (CB-1..4)."""

from __future__ import annotations

import os
from pathlib import Path

from ..watch.settings import refuse_setting


def require_callable(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse ``watch_settings_invalid`` for what cannot be called; with ``optional`` None will do."""
    if not callable(value) and not (optional and value is None):
        refuse_setting(name, value, "something that can be called" + (", or None" if optional else ""))


def require_path(name: str, value: object) -> Path:
    """Return a path, or refuse ``watch_settings_invalid``."""
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        if isinstance(path, str) and path and "\0" not in path:
            return Path(path)
    refuse_setting(name, value, "a path: a text or a pathlib.Path")


def require_depth(name: str, value: object) -> int:
    """Return how deep modules are listed, -1 for all, or refuse ``watch_settings_invalid``."""
    if type(value) is not int or value < -1:
        refuse_setting(name, value, "an integer >= -1")
    return value


def require_run_id(name: str, value: object) -> str | None:
    """Return the name of a run, or None, or refuse ``watch_settings_invalid``."""
    if value is not None and (not isinstance(value, str) or not value):
        refuse_setting(name, value, "a text that is not empty, or None")
    return value
