"""Laws about surroundings: a compiled model, environment variables, other processes. Clauses: ENV-1, CLOSE-1, TAG-6."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...model import Finding
from ..looking import data_rows, finding, is_run_row, judge_statistics, series, unexpected
from ..observation import ACKNOWLEDGED, Law, Observed
from .conduct import differing

Observations = Mapping[str, Observed]


def _compiled(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        watched, unwatched = observed.facts["watched"], observed.facts["unwatched"]
        for part in ("graphs", "graph breaks"):
            if watched[part] != unwatched[part]:
                text = f"Watching a compiled model changes its number of {part}."
                findings.append(finding(text, unwatched[part], watched[part], "coerced", observed.case))
        if watched["parameters"] != unwatched["parameters"]:
            findings += differing(observed, "Watching a compiled model changes what it computes.")
        told = series(observed.first_rows, "gradients")
        leaves = {f"{layer}.{leaf}" for layer in (0, 2) for leaf in ("weight", "bias")}
        seen = {n: {leaf for statistic, leaf, step in told if (statistic, step) == ("norm", n)} for n in (0, 2, 4)}
        wrong = [n for n in seen if seen[n] != leaves]
        if wrong:
            text = "The series of a compiled model are not those of the model."
            shown = sorted(seen[wrong[0]])
            where = f"{observed.case} at {wrong}"
            findings.append(finding(text, sorted(leaves), shown, "dropped silently", where))
        findings += unexpected(observed)
    return findings


def _ranks(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        if observed.facts["before"] != observed.facts["after"]:
            before, after = observed.facts["before"], observed.facts["after"]
            findings.append(finding("Hooks are left after close.", before, after, "coerced", observed.case))
        findings += _emitting_rank(observed) if observed.facts["rank"] == 0 else _silent_rank(observed)
        findings += unexpected(observed)
    return findings


def _emitting_rank(observed: Observed) -> list[Finding]:
    findings = []
    rows = data_rows(observed.first_rows)
    wrapped = sorted({row.tag for row in rows if "/module." in row.tag})
    if wrapped:
        text = "A leaf carries the wrapper's name."
        wanted = wrapped[0].replace("/module.", "/")
        findings.append(finding(text, wanted, wrapped[0], "coerced", observed.case))
    # The numbers are judged all the same.
    plain = [replace(row, tag=row.tag.replace("/module.", "/")) for row in rows]
    for n, gradients in observed.facts["gradients"].items():
        findings += judge_statistics(plain, "gradients", n, gradients, observed.case)
    return findings


def _silent_rank(observed: Observed) -> list[Finding]:
    findings = []
    rows = data_rows(observed.first_rows)
    if rows:
        text = "A rank that is not 0 emits, so every series has a point for each process."
        findings.append(finding(text, "no row", f"{len(rows)} rows", "coerced", observed.case))
    why = observed.report.disabled_by if observed.report is not None else ""
    if "rank" not in why:
        text = "The close report of a rank that emits nothing does not say why."
        findings.append(finding(text, "rank 0 emits", why or "nothing", "dropped silently", observed.case))
    return findings


def _named(observations: Observations, name: str) -> Observed | None:
    return next((seen for seen in observations.values() if seen.case == f"environment/{name}"), None)


def _disabled(observations: Observations) -> list[Finding]:
    off, free = _named(observations, "disabled"), _named(observations, "none")
    if off is None or free is None:
        return []
    findings = unexpected(off)
    data = data_rows(off.first_rows)
    if data:
        findings.append(finding("A disabled session sends data.", "no row", f"{len(data)} rows", "coerced", off.case))
    if not any(is_run_row(row, "disabled") and row.value for row in off.first_rows):
        text = "That the session is disabled is not told."
        findings.append(finding(text, "torchlens/run/disabled", "no such row", "dropped silently", off.case))
    before, during = off.facts.get("hooks", ({}, {}))
    if before != during:
        findings.append(finding("A disabled session sets hooks.", before, during, "coerced", off.case))
    if off.report is not None and not off.report.disabled_by:
        text = "The close report does not say what disabled the session."
        findings.append(finding(text, "TORCHLENS_WATCH_DISABLE", "nothing", "dropped silently", off.case))
    if off.facts["parameters"] != free.facts["parameters"]:
        text = "A disabled session changes the training."
        findings.append(finding(text, "the same parameters", "others", "coerced", off.case))
    return findings


def _turns_nothing_on(observations: Observations) -> list[Finding]:
    free = _named(observations, "none")
    if free is None:
        return []
    findings = unexpected(free)
    right = _told(free)
    if not data_rows(free.first_rows):
        findings.append(finding("No data row came.", "rows", "none", "dropped silently", free.case))
    for observed in observations.values():
        if observed.case.endswith("/disabled"):
            continue
        if _told(observed) != right:
            text = "An environment variable changes what a session sends."
            seen = sorted({row.tag for row in observed.first_rows} - {row.tag for row in free.first_rows})
            shown = f"{len(observed.first_rows)} rows, also {seen[:2]}" if seen else f"{len(observed.first_rows)} rows"
            findings.append(finding(text, f"{len(free.first_rows)} rows", shown, "coerced", observed.case))
        if observed.events[0].outcome == ACKNOWLEDGED:
            findings += unexpected(observed)
    return findings


def _told(observed: Observed) -> list[tuple[Any, ...]]:
    return [(row.kind, row.tag, row.step, row.value) for row in observed.first_rows if row.kind != "text"]


LAWS = (
    Law(
        "compiled.graphs",
        ("TIER-0", "TAG-6"),
        "Does watching the boundary of a compiled model add no graph and no break, under the model's own names?",
        ("compiled",),
        _compiled,
        ("compiled", "parameters", "updates"),
        remedy="Set no hook on modules for what is read at the optimizer.",
    ),
    Law(
        "parallel.ranks",
        ("CLOSE-1", "TAG-6"),
        "In a data-parallel run, does rank 0 emit the reduced gradients, and the other rank nothing, and say so?",
        ("data-parallel",),
        _ranks,
        ("data-parallel",),
        remedy="Ask torch.distributed for the rank at attach, and tell it in the report.",
    ),
    Law(
        "environment.disables",
        ("ENV-1", "CLOSE-1"),
        "Does TORCHLENS_WATCH_DISABLE=1 turn off everything, and is it told?",
        ("environment",),
        _disabled,
        ("disable",),
        remedy="Look at the variable at attach; set no hook, and send torchlens/run/disabled.",
    ),
    Law(
        "environment.turns-nothing-on",
        ("ENV-1",),
        "Does no environment variable change what a session sends, unless it turns it off?",
        ("environment",),
        _turns_nothing_on,
        remedy="Settings of watch() are its arguments; variables are for callbacks.",
    ),
)
"""The laws about surroundings."""
