"""What a planted defect of an engine is."""

from __future__ import annotations

from dataclasses import dataclass

from ..adapter import CALLBACKS
from ..plain_callbacks import PlainDriver
from ..plain_engine import PlainEngine, PlainSession


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that an engine can do wrong, as an engine that does it.

    Args:
        id: Stable, in words joined by hyphens.
        idea: What it does wrong, one sentence.
        engine: The engine that does it.
        killed_by: The ids of the laws that it was planted for; all of them fail on it.
    """

    id: str
    idea: str
    engine: PlainEngine
    killed_by: tuple[str, ...]


def planted(identity: str, session: type[PlainSession], *killed_by: str) -> Defect:
    """Return a defect whose idea is the first line of the session's documentation."""
    lacks = dict.fromkeys(CALLBACKS, "the defect is one of watch()")
    return Defect(identity, _idea(session), PlainEngine(identity, session, lacks=lacks), killed_by)


def planted_callback(identity: str, driver: type[PlainDriver], *killed_by: str) -> Defect:
    """Return a defect of callbacks, whose idea is the first line of the driver's documentation."""
    return Defect(identity, _idea(driver), PlainEngine(identity, driver=driver), killed_by)


def _idea(thing: type) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
