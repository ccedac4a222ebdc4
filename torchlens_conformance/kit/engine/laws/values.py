"""Laws about numbers: statistics, counts, what is missing, updates, names of series. Clauses: STAT, GRID, TAG."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite, isinf, isnan
from typing import Any

from ....protocol import DEFAULT_DESCRIPTOR, FAMILIES, unsafe_reason
from ...model import Finding
from ..looking import (
    data_rows,
    finding,
    is_data,
    judge_statistics,
    run_rows,
    same_number,
    series,
    silent,
    statistics_of,
    unexpected,
)
from ..observation import Law, Observed, Row

Observations = Mapping[str, Observed]

_KINDS = {
    "nan": isnan,
    "posinf": lambda value: value > 0 and isinf(value),
    "neginf": lambda value: -value > 0 and isinf(value),
}


def _statistics(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        wanted = observed.facts.get("gradients", {})
        findings += judge_statistics(observed.first_rows, "gradients", observed.facts["step"], wanted, observed.case)
        findings += silent(observed)
        findings += unexpected(observed)
    return findings


def bin_of(value: float, edges: Sequence[float]) -> int:
    """Return the bucket of a finite value on signed edges: upper edges belong outwards on both sides."""
    if value < 0:
        mirrored = [-edge for edge in reversed(edges)]
        return len(edges) - 2 - (bisect_right(mirrored, -value) - 1)
    return bisect_right(edges, value) - 1


def judge_histogram(row: Row, values: Sequence[float], case: str) -> list[Finding]:
    """Compare counts, edges and summary of one histogram with the values that were there. Clause: GRID-1, GRID-2."""
    where = f"{case}: {row.tag} at {row.step}"
    grid = DEFAULT_DESCRIPTOR.edges
    near = len(row.edges) == len(grid) and all(abs(a - b) <= 1e-12 * abs(b) for a, b in zip(row.edges, grid))
    if not near or len(row.counts) != len(grid) - 1:
        return [
            finding("The grid is not the default one.", f"{len(grid)} edges", f"{len(row.edges)}", "coerced", where)
        ]
    if not all(type(count) is int for count in row.counts):
        return [finding("Counts are not integers.", "int", type(row.counts[0]).__name__, "coerced", where)]
    inside = [value for value in values if isfinite(value) and abs(value) < grid[-1]]
    right = [0] * len(row.counts)
    for value in inside:
        # The centre band is open on both sides and holds zeros.
        right[len(right) // 2 if abs(value) < -grid[len(grid) // 2 - 1] else bin_of(value, grid)] += 1
    if list(row.counts) != right:
        bucket = next(n for n, (a, b) in enumerate(zip(row.counts, right)) if a != b)
        off = sum(abs(a - b) for a, b in zip(row.counts, right))
        shown = f"{row.counts[bucket]} in bucket {bucket} (L1 error {off} of {len(values)})"
        return [finding("Counts are not exact.", f"{right[bucket]} in bucket {bucket}", shown, "bounded", where)]
    return _judge_summary(row, values, where)


def _judge_summary(row: Row, values: Sequence[float], where: str) -> list[Finding]:
    known = statistics_of(values)
    finite = [value for value in values if isfinite(value)]
    right: dict[str, float] = {"num": known["count"]}
    if finite:
        right |= {"min": known["min"], "max": known["max"], "sum": known["mean"] * len(finite)}
        right["sum_squares"] = known["norm"] ** 2
    scales = {"sum": sum(map(abs, finite)), "sum_squares": right.get("sum_squares", 0.0)}
    findings = []
    for key, value in row.summary.items():
        if key not in right:
            if not finite and value == 0 and key in ("sum", "sum_squares"):
                continue
            findings.append(finding("A summary field was made up.", "left out", f"{key}={value!r}", "coerced", where))
        elif not same_number(right[key], value, exact=key in ("num", "min", "max"), scale=scales.get(key, 0.0)):
            findings.append(finding(f"The summary's {key} is wrong.", repr(right[key]), repr(value), "coerced", where))
    return findings


def _counts(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        step = observed.facts["step"]
        histograms = series((row for row in observed.first_rows if row.kind == "histogram"), "gradients")
        beyond = series(observed.first_rows, "gradients")
        for leaf, values in observed.facts.get("gradients", {}).items():
            if not any(map(isfinite, values)):
                # Nothing to count: a histogram may be there, empty, or not.
                continue
            rows = histograms.get(("hist", leaf, step), [])
            where = f"{observed.case}: gradients/hist/{leaf}"
            if not rows:
                findings.append(finding("A histogram is missing.", "one", "none", "dropped silently", where))
            for row in rows:
                findings += judge_histogram(row, values, observed.case)
            over = sum(isfinite(value) and abs(value) >= DEFAULT_DESCRIPTOR.edges[-1] for value in values)
            told = [row.value for row in beyond.get(("overflow", leaf, step), [])]
            if told != ([over] if over else []):
                text = "What lies beyond the grid is not told by its own scalar."
                findings.append(finding(text, over or "no row", told or "no row", "dropped silently", where))
    return findings


def _nonfinite(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        step = observed.facts["step"]
        told = series(observed.first_rows, "nonfinite")
        for leaf, values in observed.facts.get("gradients", {}).items():
            counts = {kind: sum(map(test, values)) for kind, test in _KINDS.items()}
            for kind, count in counts.items():
                seen = [row.value for row in told.get((f"gradients_{kind}", leaf, step), [])]
                wanted = [count] if any(counts.values()) else []
                if seen != wanted:
                    where = f"{observed.case}: nonfinite/gradients_{kind}/{leaf}"
                    text = "A count of non-finite values is wrong."
                    findings.append(finding(text, wanted or "no row", seen or "no row", "dropped silently", where))
    return findings


def _missing(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        ghosts = [
            row.tag for row in data_rows(observed.first_rows) if row.tag.rpartition("/")[2] in ("unused", "frozen")
        ]
        if ghosts:
            text = "A gradient that does not exist has rows."
            findings.append(finding(text, "no row", f"{len(ghosts)} rows, {ghosts[0]}", "coerced", observed.case))
        findings += silent(observed)
    return findings


def _updates(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        for n, after in observed.facts["after"].items():
            before = observed.facts["before"][n]
            wanted = {leaf: [b - a for a, b in zip(before[leaf], values)] for leaf, values in after.items()}
            rounded = ("count", "zero_fraction")
            findings += judge_statistics(observed.first_rows, "updates", n, wanted, observed.case, exact=rounded)
        findings += unexpected(observed)
    return findings


def _ratio(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        told = series(observed.first_rows, "updates")
        for n, after in observed.facts["after"].items():
            for leaf, values in after.items():
                before = observed.facts["before"][n][leaf]
                norm = statistics_of(before)["norm"]
                if not norm:
                    continue
                right = statistics_of([b - a for a, b in zip(before, values)])["norm"] / norm
                seen = [row.value for row in told.get(("ratio", leaf, n), [])]
                if len(seen) != 1 or not same_number(right, seen[0], exact=False):
                    where = f"{observed.case}: updates/ratio/{leaf} at {n}"
                    text = "The ratio of update to parameter is wrong."
                    findings.append(finding(text, repr(right), seen or "no row", "dropped silently", where))
    return findings


def _parameters(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        for n, after in observed.facts["after"].items():
            rows = observed.first_rows
            # Before or after the step: both are the parameters of that step; a mixture is neither.
            either = [
                judge_statistics(rows, "parameters", n, values, observed.case)
                for values in (observed.facts["before"][n], after)
            ]
            findings += either[0] if len(either[0]) <= len(either[1]) else either[1]
    return findings


def _once(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        counted = Counter((row.tag, row.kind, row.step) for row in observed.first_rows if is_data(row))
        twice = [key for key, number in counted.items() if number > 1]
        if twice:
            tag, _, step = twice[0]
            values = [row.value for row in observed.first_rows if (row.tag, row.step) == (tag, step)]
            where = f"{observed.case}: {tag} at {step} and {len(twice) - 1} more"
            text = "A series has several points at one step."
            findings.append(finding(text, "one point", values, "coerced", where))
        findings += silent(observed)
    return findings


def _names(observations: Observations) -> list[Finding]:
    findings = []
    leaves = {"h.1.weight", "h.11.weight"}
    for observed in observations.values():
        if "leaves" in observed.facts:
            continue
        name, space = observed.facts.get("name"), observed.facts.get("namespace")
        wanted = {"h.1.weight"} if "select" in observed.facts else leaves
        seen_leaves = set()
        for row in observed.first_rows:
            why = _misnamed(row.tag, name, space)
            if why:
                findings.append(finding("A tag is not named by the grammar.", why, row.tag, "coerced", observed.case))
            elif is_data(row):
                seen_leaves.add(row.tag.rpartition("/")[2])
        if seen_leaves != wanted:
            text = "The leaves are not those that were selected."
            findings.append(finding(text, sorted(wanted), sorted(seen_leaves), "dropped silently", observed.case))
        findings += unexpected(observed)
    return findings


def _misnamed(tag: str, name: Any, space: Any) -> str:
    if unsafe_reason(tag):
        return f"it {unsafe_reason(tag)}"
    parts = tag.split("/")
    if space is not None and parts.pop(0) != space:
        return f"{space}/ first"
    if parts[0] not in (*FAMILIES, "torchlens"):
        return "a family, or torchlens, as the root"
    at = 2 if parts[0] == "torchlens" else 1
    if parts[0] == "torchlens" and parts[1] not in ("run", "meta", "check"):
        return "run, meta or check below torchlens"
    if name is not None and (len(parts) <= at or parts.pop(at) != name):
        return f"the name {name!r} as component {at}"
    return "" if len(parts) == 3 else "three components besides name and namespace"


def _no_claims(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        for key in ("amp_scale", "amp_unscale_derived"):
            if run_rows(observed, key):
                text = "Something is claimed about a scaler that is not there."
                findings.append(finding(text, "no row", f"torchlens/run/{key}", "coerced", observed.case))
        findings += silent(observed)
    return findings


LAWS = (
    Law(
        "values.statistics",
        ("STAT-1", "STAT-3"),
        "Is every statistic that of the values, and left out where it does not exist?",
        ("statistics",),
        _statistics,
        ("histograms",),
        remedy="Reduce over finite values in float64, and leave out what has no value.",
    ),
    Law(
        "values.counts",
        ("GRID-1", "GRID-2", "STAT-1"),
        "Is every histogram count exact, by comparison in float64, and is what lies beyond told apart?",
        ("statistics",),
        _counts,
        ("histograms",),
        remedy="Compare with the edges in float64; a logarithm, or float32, puts values at an edge in the wrong bin.",
    ),
    Law(
        "values.nonfinite",
        ("STAT-2", "TAG-5"),
        "Are NaN and the infinities counted under the name of their stream, all three or none?",
        ("statistics",),
        _nonfinite,
        ("histograms",),
        remedy="Emit all three counts as soon as one is not zero.",
    ),
    Law(
        "values.missing",
        ("ATTACH-8", "POINT-2"),
        "Is a gradient that does not exist left out, and not zero?",
        ("statistics",),
        _missing,
        ("histograms",),
        remedy="A None gradient has no row; name the skip.",
    ),
    Law(
        "values.updates",
        ("STAT-4",),
        "Are updates the parameters after the step minus those before?",
        ("updates",),
        _updates,
        ("updates", "parameters", "histograms"),
        remedy="Keep what was there before the step and subtract; the rate times the gradient is not the update.",
    ),
    Law(
        "values.ratio",
        ("STAT-5",),
        "Is updates/ratio the norm of the update over that of the parameter before it?",
        ("updates",),
        _ratio,
        ("updates", "parameters", "histograms"),
        remedy="Divide the two norms, and leave the row out where the parameter is zero.",
    ),
    Law(
        "values.parameters",
        ("STAT-1",),
        "Are parameter statistics those of the parameters before or after the step?",
        ("updates",),
        _parameters,
        ("updates", "parameters", "histograms"),
        remedy="Read them at one side of the boundary, once.",
    ),
    Law(
        "values.once",
        ("TAG-1", "STEP-1"),
        "Has each series one point a step?",
        ("updates", "statistics"),
        _once,
        ("updates", "parameters", "histograms"),
        remedy="Two values under one tag and step cannot both be shown; one of them is lost downstream.",
    ),
    Law(
        "values.names",
        ("TAG-1", "TAG-2", "TAG-3", "TAG-6"),
        "Are all tags named by the grammar, with name= and namespace= in their places, and selectors by components?",
        ("names",),
        _names,
        ("names", "histograms"),
        remedy="Build every tag in one place.",
    ),
    Law(
        "values.no-claims",
        ("AMP-5",),
        "Is nothing claimed about a scale where there is no scaler?",
        ("updates", "statistics"),
        _no_claims,
        ("updates", "parameters", "histograms"),
        remedy="Leave the rows out.",
    ),
)
"""The laws about numbers and names."""
