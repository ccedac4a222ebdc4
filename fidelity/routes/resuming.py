"""How a route ends a run and continues the same run, in the tracker's own ways (FID-8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from torchlens_conformance.protocol import Point

from ..received import Received, Refused

Send: TypeAlias = Callable[[Sequence[Point], Path], list[Refused]]
"""``send(points, place)``: as the field ``send`` of a route."""

_Run = TypeVar("_Run")

_RUN_ID = "run-id"


class NotOffered(Exception):
    """The measured version of a tracker has no such way of continuing a run; the message says what is missing."""


class NotContinued(Exception):
    """The tracker raised when it was asked to continue a run; its own exception is the cause."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a run is continued.

    Args:
        name: The call or setting, as a person writes it.
        send: ``send(points, place)``, in a new process: continue the run that was ended in ``place``, emit the points,
            end it again and return what was refused. Raises :class:`NotOffered` and :class:`NotContinued`.
    """

    name: str
    send: Send


@dataclass(frozen=True, slots=True)
class Resume:
    """How a route ends a run and continues it.

    Args:
        begin: ``begin(points, place)``: emit the points into a fresh run, end it as a program does, and return what was
            refused.
        ways: The tracker's default first; its word is the cell's. The others' numbers stand beside it.
        read: ``read(place)``: read everything that is stored of that run, whoever wrote it.
    """

    begin: Send
    ways: tuple[Way, ...]
    read: Callable[[Path], Received]


def continue_run(start: Callable[[], _Run]) -> _Run:
    """Return ``start()``.

    Raises :class:`NotOffered` where a function or an argument of it is missing, and :class:`NotContinued` where the
    tracker raises anything else.

    Args:
        start: Asks the tracker to continue a run.
    """
    try:
        return start()
    except (AttributeError, ImportError, TypeError) as error:
        raise NotOffered(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise NotContinued(str(error)) from error


def keep_run_id(place: Path, run_id: str) -> None:
    """Note the id of the run that was begun, for whoever continues it."""
    (place / _RUN_ID).write_text(run_id, encoding="utf-8")


def kept_run_id(place: Path) -> str | None:
    """Return the id of the run that was begun in ``place``; None where the store has one run and names none."""
    file = place / _RUN_ID
    return file.read_text(encoding="utf-8") if file.exists() else None


def begun_run_id(place: Path) -> str:
    """Return the id of the run that was begun in ``place``. Raises ``LookupError`` where none was kept."""
    run_id = kept_run_id(place)
    if run_id is None:
        raise LookupError("no run was begun here")
    return run_id
