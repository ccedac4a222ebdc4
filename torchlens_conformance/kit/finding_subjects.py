"""Finding the subject that the command line names: ``PKG.MOD:SUBJECT``, or a sink class with a reader."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ..protocol import Refusal
from .processes import OK, Channel, Limits, run_child
from .subject import Subject

_LIMITS = Limits(timeout=60.0)
_FORM = "Name it as PKG.MOD:NAME, where PKG.MOD can be imported from here."


class CannotImport(Exception):
    """The module that holds the subject exists and fails: it raises, exits or hangs. The text says how."""


class OpenSinkClass:
    """Opens a sink by calling its class with the place; it can be pickled when the class can."""

    def __init__(self, sink_class: Callable[[Path], Any]) -> None:
        self.sink_class = sink_class

    def __call__(self, place: Path) -> Any:
        """Open a sink on ``place``."""
        return self.sink_class(place)


def find_subject(target: str, reader: str | None = None) -> Subject:
    """Import and return the subject.

    The import is tried in a child process first, so that a module which exits or hangs takes nobody with it.

    Args:
        target: ``PKG.MOD:SUBJECT``, a :class:`Subject` or what ``certification`` made of one; with ``reader`` it is a
            callable that opens a sink on a place.
        reader: ``PKG.MOD:read``.

    Raises ``kit_subject_not_found`` when there is nothing of that name, ``kit_subject_invalid`` when it is no subject,
    :class:`CannotImport` when its module fails.
    """
    here = os.getcwd()
    if here not in sys.path:
        # As `python -m` does: the module under test usually stands here and is not installed.
        sys.path.insert(0, here)
    for name in filter(None, (target, reader)):
        _try(name)
    found = _get(target)
    if reader is not None:
        return _of_class(target, found, _get(reader))
    subject = getattr(found, "subject", found)
    if isinstance(subject, Subject):
        return subject
    raise Refusal(
        "kit_subject_invalid",
        f"{target} is a {type(found).__name__}, not a Subject.",
        remedy="Name a Subject, or a sink class together with --reader PKG.MOD:read.",
        target=target,
    )


def _of_class(target: str, sink_class: Any, read: Any) -> Subject:
    name = str(getattr(sink_class, "__name__", target))
    module = str(getattr(sink_class, "__module__", "") or "")
    open_ = OpenSinkClass(sink_class) if callable(sink_class) else sink_class
    return Subject(name=name, open=open_, read=read, distribution=module.partition(".")[0] or None)


def _try(target: str) -> None:
    outcome = run_child(lambda channel: _import_and_tell(target, channel), limits=_LIMITS)
    for record in outcome.records:
        if record[0] == "refusal":
            raise record[1]
        if record[0] == "failed":
            raise CannotImport(record[1])
    if outcome.ended != OK:
        said = outcome.output.strip().splitlines()[-1:]
        raise CannotImport(f"importing it ended the process ({outcome.ended})" + "".join(f": {line}" for line in said))


def _import_and_tell(target: str, channel: Channel) -> None:
    try:
        _get(target)
    except Refusal as refusal:
        channel.send("refusal", refusal)
    except BaseException as error:
        channel.send("failed", f"{type(error).__name__}: {error}"[:1000])


def _get(target: str) -> Any:
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise _not_found(target, f"{target!r} is no name of the form PKG.MOD:NAME.")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise _not_found(target, f"There is no module {error.name!r}.") from None
        raise
    for part in name.split("."):
        if not hasattr(found, part):
            raise _not_found(target, f"{module_name} has no {name!r}.")
        found = getattr(found, part)
    return found


def _not_found(target: str, message: str) -> Refusal:
    return Refusal("kit_subject_not_found", message, remedy=_FORM, target=target)
