"""Whether the controls hold; if not, nothing in the table can be trusted (FID-7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .spoils import SPOILS
from .verdicts import LOSSLESS, NOT_APPLICABLE


def control_faults(routes: Mapping[str, Sequence[Mapping[str, object]]]) -> list[str]:
    """Return a sentence for every control cell that is off; an empty list means the table stands.

    Args:
        routes: The rows of each route by route id; the two controls must be among them.

    Clause: FID-7.
    """
    return [*_exact_faults(routes.get("jsonl", ())), *_sabotage_faults(routes.get("sabotage", ()))]


def _exact_faults(rows: Sequence[Mapping[str, object]]) -> list[str]:
    if not rows:
        return ["the exact control did not run"]
    allowed = {"writer-first": LOSSLESS | {NOT_APPLICABLE}}
    return [
        f"the exact control has {row['verdict']!r} in {_name(row)}"
        for row in rows
        if row["verdict"] not in allowed.get(str(row["id"]), LOSSLESS)
    ]


def _sabotage_faults(rows: Sequence[Mapping[str, object]]) -> list[str]:
    if not rows:
        return ["the wrong control did not run"]
    faults = [f"no spoil was measured for {row}" for row in SPOILS if all(row != cell["id"] for cell in rows)]
    for row in rows:
        spoil = SPOILS[str(row["id"])]
        if row["verdict"] != spoil.word:
            faults.append(f"{spoil.name!r} was called {row['verdict']!r} in {_name(row)}, not {spoil.word!r}")
        numbers = row["numbers"]
        leaks = numbers.get("leaks") if isinstance(numbers, Mapping) else None
        if leaks:
            faults.append(f"{spoil.name!r} changed other rows as well: {leaks}")
    return faults


def _name(row: Mapping[str, object]) -> str:
    return f"{row['id']} ({row['grid']})" if row["grid"] else str(row["id"])
