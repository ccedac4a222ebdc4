"""What changed for a user, in sentences: before and now, said once where grids changed alike (FID-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..grids import GRIDS
from ..losses import USES, losses
from ..verdicts import LOSSLESS, NOT_APPLICABLE, NOT_MEASURED
from .significant import Cell, CellChange, short

KEPT = "kept"
"""Stands for a cell in which nothing was lost."""

_NUMBERS: Mapping[str, str] = {
    "arrived": "how many arrive",
    "counts_l1": "largest difference of the counts",
    "counts_l1_median": "difference of the counts in the median",
    "delivered": "share that arrives",
    "exact": "how many arrive exact",
    "extra": "how many arrive that nobody sent",
    "fields": "fields that arrive",
    "float32_equal": "equal as float32",
    "histogram_step_map": "steps of histograms",
    "mass_kept": "share of the mass at worst",
    "mass_kept_median": "share of the mass in the median",
    "overlaps": "how many land on top of others",
    "rebinned": "how many arrive in other buckets",
    "refused": "how many are refused",
    "step_map": "steps",
    "steps_kept": "how many keep their step",
    "unchanged": "how many arrive unchanged",
    "value_error": "largest error of a value",
    "variants": "other ways of continuing",
}
"""Names of numbers in words; every other name says what it is when its underscores are blanks."""


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that changed for a user.

    Args:
        sentence: What was and what is, in words.
        numbers: The words and numbers behind it, as they stand in the table.
    """

    sentence: str
    numbers: Sequence[str]


def told(changes: Iterable[CellChange]) -> list[Told]:
    """Return a sentence for each row that changed; grids that changed alike share one. Clause: FID-3."""
    groups: dict[tuple[str, str, str], list[CellChange]] = {}
    for change in changes:
        groups.setdefault((change.route, change.row, _before_and_now(change)), []).append(change)
    return [Told(f"{_place(group)}: {key[2]}", _behind(group)) for key, group in groups.items()]


def meaning(cell: Cell | None, *, route: str) -> str:
    """Return what a cell of a route means for a person; its grid is not named."""
    if cell is None or cell["verdict"] == NOT_MEASURED:
        return NOT_MEASURED
    if cell["verdict"] in LOSSLESS:
        return KEPT
    if cell["verdict"] == NOT_APPLICABLE:
        return NOT_APPLICABLE
    (sentence,) = losses([{**cell, "grid": None}], route=route)
    return sentence.removeprefix(f"{cell['id']}: ")


def _before_and_now(change: CellChange) -> str:
    before, now = (meaning(cell, route=change.route) for cell in (change.old, change.new))
    if before != now:
        return f"before: {before}; now: {now}"
    numbers = [
        f"{_name(name)}: before {_value(name, old)}, now {_value(name, new)}"
        for name, (old, new) in change.numbers.items()
    ]
    return "; ".join([f"as before, {now}", *numbers])


def _place(group: Sequence[CellChange]) -> str:
    route, row = group[0].route, group[0].row
    use = f" ({USES[route]})" if route in USES else ""
    grids = [change.grid for change in group if change.grid]
    where = "every grid" if set(grids) == set(GRIDS) else ", ".join(grids)
    return f"{route}{use}, {row}{f' on {where}' if grids else ''}"


def _behind(group: Sequence[CellChange]) -> list[str]:
    alike = list(dict.fromkeys(change.difference for change in group))
    return alike if len(alike) == 1 else [str(change) for change in group]


def _name(name: str) -> str:
    return _NUMBERS.get(name, name.replace("_", " "))


def _value(name: str, value: Any) -> str:
    """A number in words; a map of steps says what each one becomes."""
    if not name.endswith("step_map") or not value:
        return short(value)
    arrived = {sent: found if isinstance(found, str) else "/".join(map(str, found)) for sent, found in value.items()}
    return ", ".join(f"{sent} becomes {found}" for sent, found in arrived.items())
