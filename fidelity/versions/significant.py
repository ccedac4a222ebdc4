"""What counts as a change of a cell: its word, or a number that says something about the data (FID-3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torchlens_conformance.protocol import encode_value

Cell: TypeAlias = Mapping[str, Any]
"""A measured cell: ``id``, ``grid``, ``verdict``, ``numbers``."""

_NO_FACTS_ABOUT_DATA = frozenset({"notices"})
"""How many lines a tracker logs depends on timing; the verdict word already says whether there was one."""

_DIGITS = 6
"""Floats are compared by so many significant digits, far above what arithmetic differs by between machines."""

FEW_STEPS = 3
"""A sent step that arrived as more different steps than this counts as scattered."""

MANY_STEPS = "many"
"""Stands for the received steps of a scattered one."""

ABSENT = "absent"
"""Stands for the word of a cell that one side lacks."""


@dataclass(frozen=True, slots=True)
class CellChange:
    """One cell that differs between two measurements.

    Args:
        route: The route's id.
        row: The row's id.
        grid: The grid's name, or None.
        before: The old word.
        after: The new word.
        numbers: The significant numbers that differ: name to (old, new); None where one side has none.
        old: The old cell, or None.
        new: The new cell, or None.
    """

    route: str
    row: str
    grid: str | None
    before: str
    after: str
    numbers: Mapping[str, tuple[Any, Any]]
    old: Cell | None = field(default=None, repr=False, compare=False)
    new: Cell | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.route}, {self.row}{f' ({self.grid})' if self.grid else ''}: {self.difference}"

    @property
    def difference(self) -> str:
        """The words and numbers that differ, without the place."""
        words = self.before if self.before == self.after else f"{self.before} -> {self.after}"
        shown = ", ".join(f"{name} {short(old)} -> {short(new)}" for name, (old, new) in self.numbers.items())
        return f"{words}{f'; {shown}' if shown and ABSENT not in (self.before, self.after) else ''}"


def significant(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers that say something about the data, floats cut to six significant digits.

    Where one sent step arrived as many, each event has a row of its own: that is a fact; which rows, and how many of
    them happen to have the sent step's number, is chance.
    """
    kept = {name: value for name, value in sorted(numbers.items()) if name not in _NO_FACTS_ABOUT_DATA}
    steps = kept.get("step_map")
    if isinstance(steps, Mapping):
        kept["step_map"] = {step: found if len(found) <= FEW_STEPS else MANY_STEPS for step, found in steps.items()}
        if MANY_STEPS in kept["step_map"].values():
            kept.pop("steps_kept", None)
    variants = kept.get("variants")
    if isinstance(variants, Mapping):
        kept["variants"] = {name: significant(found) for name, found in variants.items()}
    return {name: _cut(value) for name, value in kept.items()}


def cell_changes(route: str, before: Iterable[Cell], after: Iterable[Cell]) -> list[CellChange]:
    """Return the cells of one route that differ, in the order of ``after``, then those that only ``before`` has."""
    old = {(cell["id"], cell["grid"]): cell for cell in before}
    new = {(cell["id"], cell["grid"]): cell for cell in after}
    changes = []
    for key in dict.fromkeys([*new, *old]):
        first, second = old.get(key), new.get(key)
        words = [ABSENT if cell is None else str(cell["verdict"]) for cell in (first, second)]
        numbers = _number_changes(first, second)
        if words[0] != words[1] or numbers:
            changes.append(CellChange(route, *key, words[0], words[1], numbers, first, second))
    return changes


def cell_count(number: int) -> str:
    """Return how many cells, in words."""
    return f"{number} cell{'' if number == 1 else 's'}"


def result_digest(cells: Mapping[str, Sequence[Cell]]) -> str:
    """Return a SHA-256 (hex) over words and significant numbers of the measured cells, by route id.

    Dates, machines, versions and evidence are not in it: two versions that do the same have the same digest.
    """
    routes = [f"{json.dumps(route)}:[{','.join(map(_digested, found))}]" for route, found in sorted(cells.items())]
    return hashlib.sha256(f"{{{','.join(routes)}}}".encode()).hexdigest()


def _digested(cell: Cell) -> str:
    facts = [cell["id"], cell["grid"], cell["verdict"], significant(cell["numbers"])]
    return plain_json(facts, sort_keys=True, separators=(",", ":"))


def plain_json(value: Any, **options: Any) -> str:
    """Return a value of decoded JSON as standard JSON again; the quick way, unless something has to be encoded."""
    try:
        text = json.dumps(value, allow_nan=False, **options)
    except ValueError:
        text = ""
    return text if text and '"$' not in text else json.dumps(encode_value(value), **options)


def _number_changes(first: Cell | None, second: Cell | None) -> dict[str, tuple[Any, Any]]:
    if first is not None and second is not None and first["numbers"] == second["numbers"]:
        return {}
    old, new = (significant(cell["numbers"]) if cell else {} for cell in (first, second))
    changed = {name: (old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])}
    return {name: pair for name, pair in changed.items() if not _same(*pair)}


def _same(old: Any, new: Any) -> bool:
    # By their text, so that NaN equals itself and 1 is not 1.0's rival.
    return bool(old == new) or repr(old) == repr(new)


def _cut(value: Any) -> Any:
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS - 1}e}")
    if isinstance(value, Mapping):
        return {str(key): _cut(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(item) for item in value]
    return value


def short(value: Any, *, most: int = 120) -> str:
    """Return a number or a mapping of numbers as a text of bounded length."""
    text = f"{value:g}" if isinstance(value, float) else json.dumps(encode_value(value), ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."
