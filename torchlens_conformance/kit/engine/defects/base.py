"""What a planted defect of an engine is."""

from __future__ import annotations

from dataclasses import dataclass

from ..adapter import CALLBACKS
from ..plain_callbacks import PlainDriver
from ..plain_engine import PlainEngine
from ..plain_session import PlainSession


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that an engine can do wrong, as an engine that does it.

    Args:
        id: Stable, in words joined by hyphens.
        idea: What it does wrong, one sentence.
        engine: The engine that does it.
        killed_by: The ids of the laws that it was planted for; all of them fail on it.
        scope: Beginnings of the ids of all laws that it can fail: what is wrong lies in a part of the plain engine that
            no other law drives. Empty when any law may tell.
    """

    id: str
    idea: str
    engine: PlainEngine
    killed_by: tuple[str, ...]
    scope: tuple[str, ...] = ()


def planted(identity: str, session: type[PlainSession], *killed_by: str) -> Defect:
    """Return a defect of what every session does; its idea is the first line of the session's documentation."""
    lacks = {word: "the defect is one of what every session does" for word in (*CALLBACKS, "operations")}
    return Defect(identity, _idea(session), PlainEngine(identity, session, lacks=lacks), killed_by)


def planted_operation(identity: str, session: type[PlainSession], *killed_by: str) -> Defect:
    """Return a defect of op grain, whose idea is the first line of the session's documentation."""
    return Defect(identity, _idea(session), PlainEngine(identity, session), killed_by, scope=("op.",))


def planted_callback(identity: str, driver: type[PlainDriver], *killed_by: str) -> Defect:
    """Return a defect of callbacks, whose idea is the first line of the driver's documentation."""
    engine = PlainEngine(identity, driver=driver)
    return Defect(identity, _idea(driver), engine, killed_by, scope=("hf.", "lightning."))


def _idea(thing: type) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
