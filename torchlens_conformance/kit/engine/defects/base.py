"""What a planted defect of an engine is."""

from __future__ import annotations

from dataclasses import dataclass

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
    idea = (session.__doc__ or "").strip().splitlines()[0]
    return Defect(identity, idea, PlainEngine(identity, session), killed_by)
