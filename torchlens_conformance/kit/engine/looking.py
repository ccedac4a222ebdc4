"""How laws look at rows: what is data, what a value is expected to be, how a difference is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isfinite, isinf, isnan, sqrt
from typing import Any

from ...protocol import FAMILIES
from ..model import Finding
from .observation import ACKNOWLEDGED, RAISED, REFUSED, Event, Law, Observed, Row

TOLERANCE = 1e-5
"""Relative: statistics may be reduced in float32 when that is disclosed; counts, minima and maxima are exact."""


def finding(message: str, expected: object, seen: object, loss: str, where: str = "") -> Finding:
    """Return a finding of plain texts."""
    return Finding(message, str(expected), str(seen), loss, where)


def is_data(row: Row) -> bool:
    """Say whether a row is data: of a family, wherever a namespace puts it."""
    parts = row.tag.split("/")
    return parts[0] in FAMILIES or (len(parts) > 1 and parts[0] != "torchlens" and parts[1] in FAMILIES)


def data_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the data rows."""
    return [row for row in rows if is_data(row)]


def is_run_row(row: Row, key: str) -> bool:
    """Say whether a row is the run-health row ``key``."""
    return row.kind == "scalar" and row.tag == f"torchlens/run/{key}"


def run_rows(observed: Observed, key: str) -> dict[Any, Any]:
    """Return the values of a run-health series by step."""
    return {row.step: row.value for row in observed.first_rows if is_run_row(row, key)}


def series(rows: Iterable[Row], family: str) -> dict[tuple[str, str, Any], list[Row]]:
    """Return rows of a family by (statistic, leaf, step); two rows under one key are a finding elsewhere."""
    found: dict[tuple[str, str, Any], list[Row]] = {}
    for row in rows:
        parts = row.tag.split("/", 2)
        if len(parts) == 3 and parts[0] == family:
            found.setdefault((parts[1], parts[2], row.step), []).append(row)
    return found


def statistics_of(values: Sequence[float]) -> dict[str, float]:
    """Return the seven statistics of STAT-1, each left out where it is not known."""
    finite = [value for value in values if isfinite(value)]
    known: dict[str, float] = {"count": len(finite)}
    if values:
        known["zero_fraction"] = sum(value == 0 for value in values) / len(values)
    if finite:
        mean = fsum(finite) / len(finite)
        # Scaled, so that no square overflows or vanishes.
        largest = max(map(abs, finite)) or 1.0
        norm = largest * sqrt(fsum((value / largest) ** 2 for value in finite))
        known |= {"mean": mean, "norm": norm, "min": min(finite), "max": max(finite)}
        if len(finite) > 1:
            known["std"] = largest * sqrt(fsum(((value - mean) / largest) ** 2 for value in finite) / len(finite))
    return known


EXACT = ("count", "zero_fraction", "min", "max")
"""The statistics that have no rounding."""


def same_number(expected: float, seen: Any, *, exact: bool, scale: float = 0.0) -> bool:
    """Say whether a value is right: equal, or within the tolerance of itself or of ``scale``."""
    if not isinstance(seen, (int, float)) or isinstance(seen, bool):
        return False
    if expected == seen or (isnan(expected) and isnan(seen)):
        return True
    if exact or isnan(seen) or isinf(seen):
        return False
    return abs(expected - seen) <= TOLERANCE * max(abs(expected), scale)


def judge_statistics(
    rows: Iterable[Row],
    family: str,
    step: int,
    wanted: Mapping[str, Sequence[float]],
    case: str,
    *,
    exact: Sequence[str] = EXACT,
) -> list[Finding]:
    """Compare every statistic of a family at one step with the values that were there. Clause: STAT-1, STAT-3.

    A difference of parameters may be rounded to their dtype: then minimum and maximum are not ``exact``. A fraction of
    zeros may be left out where nothing is finite.
    """
    found = series((row for row in rows if row.kind == "scalar"), family)
    findings = []
    for leaf, values in wanted.items():
        right = statistics_of(values)
        scale = max(map(abs, (right.get("min", 0.0), right.get("max", 0.0))))
        for key in ("mean", "std", "norm", "min", "max", "count", "zero_fraction"):
            seen = [row.value for row in found.get((key, leaf, step), ())]
            where = f"{case}: {family}/{key}/{leaf} at {step}"
            if key not in right:
                if seen:
                    text = "A statistic that does not exist was made up."
                    findings.append(finding(text, "no row", seen[0], "coerced", where))
            elif not seen:
                if key == "zero_fraction" and not right["count"]:
                    continue
                findings.append(
                    finding("A statistic is missing.", repr(right[key]), "no row", "dropped silently", where)
                )
            elif not all(same_number(right[key], value, exact=key in exact, scale=scale) for value in seen):
                shown = next(v for v in seen if not same_number(right[key], v, exact=key in exact, scale=scale))
                findings.append(finding("A statistic is wrong.", _shown(right[key]), _shown(shown), "coerced", where))
    return findings


def _shown(value: Any) -> str:
    return f"{value!r} ({float(value).hex()})" if isinstance(value, float) and isfinite(value) else repr(value)


def unexpected(observed: Observed, *, among: Sequence[str] = ()) -> list[Finding]:
    """Return a finding for each operation that should have returned and did not."""
    return [
        finding(
            f"{event.what} did not return.", "it returns", event.exception, "crashed", f"{observed.case}, {event.step}"
        )
        for event in observed.events
        if event.outcome != ACKNOWLEDGED and (not among or event.what in among)
    ]


def silent(observed: Observed) -> list[Finding]:
    """Return a finding when no data row came at all, so that no law passes by nothing being there."""
    if data_rows(observed.first_rows):
        return []
    return [finding("No data row came.", "rows", "none", "dropped silently", observed.case)]


def judge_law(law: Law, observations: Mapping[str, Observed]) -> list[Finding]:
    """Ask one law about the observations of its scenarios.

    A case in which the engine could not be attached is a finding, and is not judged further.
    """
    attached, findings = {}, []
    for case, observed in observations.items():
        first = observed.events[0] if observed.events else Event("attach", RAISED, exception="it was never tried")
        if first.outcome == ACKNOWLEDGED or observed.facts.get("meant_to_refuse"):
            attached[case] = observed
        else:
            loss = "refused" if first.outcome == REFUSED else "crashed"
            findings.append(finding("It could not be attached.", "it attaches", first.exception, loss, case))
    if not findings or attached:
        findings += law.judge(attached)
    return findings
