"""Defects made at random: a kind of point, a field, a transformation and a position, all from one seed (POINT-2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random

from torchlens_conformance.protocol import Point

from ..corpus import corpus
from ..subject import Subject
from .base import Defect, PlainSink, read_plain
from .random_transformations import CHANGES, changed

WHOLE = "whole point"
"""The field name of transformations that lose or double a point."""

_WHOLE_CHANGES = ("lost", "twice", "behind the next of its series")

POSITIONS = ("every one", "the first one", "the second one", "every second one", "all but the first one")
"""Which of the points that the transformation can change are changed."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one random defect does.

    Args:
        kind: The kind of point.
        field: A field of that kind, or :data:`WHOLE`.
        change: The name of the transformation.
        position: One of :data:`POSITIONS`.
    """

    kind: type[Point]
    field: str
    change: str
    position: str

    def __str__(self) -> str:
        """Say it in one sentence."""
        return f"{self.kind.__name__}.{self.field} is changed ({self.change}) in {self.position}."


def recipe(seed: int) -> Recipe:
    """Return what the defect of this seed does, always the same."""
    chance = Random(seed)
    while True:
        kind = chance.choice(list(CHANGES))
        field = chance.choice([*CHANGES[kind], WHOLE])
        change = chance.choice(list(_WHOLE_CHANGES if field == WHOLE else CHANGES[kind][field]))
        found = Recipe(kind, field, change, chance.choice(POSITIONS))
        if _reach(kind.__name__, field, change) >= _NEEDED[found.position]:
            return found


_NEEDED = {"every one": 1, "the first one": 1, "the second one": 2, "every second one": 1, "all but the first one": 2}


@cache
def _reach(kind: str, field: str, change: str) -> int:
    """Return how many points of the corpus a transformation changes: one that changes none is no defect."""
    points = [entry.point for entry in corpus("n0123456789ab") if type(entry.point).__name__ == kind]
    if field == WHOLE:
        return len(points)
    (fields,) = (fields for known, fields in CHANGES.items() if known.__name__ == kind)
    return sum(changed(point, field, fields[field][change]) is not None for point in points)


class RandomlyWrongSink(PlainSink):
    """A plain sink that changes some of the points as its recipe says."""

    def __init__(self, place: Path, *, seed: int) -> None:
        super().__init__(place)
        self.recipe = recipe(seed)
        self._met = 0
        self._held: dict[str, list[Point]] = {}

    def emit(self, point: Point) -> None:
        """Write what the recipe makes of the point: nothing, one point or more."""
        self.require_usable()
        series = getattr(point, "tag", "")
        held = self._held.pop(series, []) if type(point) is self.recipe.kind else []
        for other in (*self._written_for(point, series), *held):
            super().emit(other)

    def _written_for(self, point: Point, series: str) -> tuple[Point, ...]:
        if type(point) is not self.recipe.kind:
            return (point,)
        if self.recipe.field == WHOLE:
            return self._moved(point, series) if self._is_hit() else (point,)
        other = changed(point, self.recipe.field, CHANGES[self.recipe.kind][self.recipe.field][self.recipe.change])
        return (other,) if other is not None and self._is_hit() else (point,)

    def _moved(self, point: Point, series: str) -> tuple[Point, ...]:
        if self.recipe.change == "twice":
            return (point, point)
        if self.recipe.change != "lost":
            self._held[series] = [point]
        return ()

    def _is_hit(self) -> bool:
        """Count the points that could be changed; say whether this one is."""
        index, self._met = self._met, self._met + 1
        return {
            "every one": True,
            "the first one": index == 0,
            "the second one": index == 1,
            "every second one": index % 2 == 0,
            "all but the first one": index > 0,
        }[self.recipe.position]


def random_defect(seed: int) -> Defect:
    """Return the defect of this seed; it must be nonconformant, whichever check says so.

    Args:
        seed: Any integer.
    """
    subject = Subject(name=f"random-{seed}", open=partial(RandomlyWrongSink, seed=seed), read=read_plain)
    return Defect(f"random-{seed}", str(recipe(seed)), subject, ())
