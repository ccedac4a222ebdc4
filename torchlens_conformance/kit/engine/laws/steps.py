"""Laws about the step: scripts against the model, cadence, spellings, first and last rows. Clauses: STEP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...model import Finding
from ..looking import data_rows, finding, is_run_row, judge_statistics, run_rows, series, unexpected
from ..observation import Law, Observed, Row
from ..script_judge import judge_script

Observations = Mapping[str, Observed]


def _scripts(observations: Observations) -> list[Finding]:
    return [found for observed in observations.values() for found in judge_script(observed)]


def _cadence(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        facts = observed.facts
        steps: Sequence[int] = facts["steps"]
        data = data_rows(observed.first_rows)
        for kind, every in (("scalar", facts["every"]), ("histogram", facts["hist_every"])):
            due = [n for n in steps if n == steps[0] or n % every == 0]
            if kind == "scalar":
                # A step with histograms carries its scalars too.
                due = [n for n in steps if n in due or n == steps[0] or n % facts["hist_every"] == 0]
            seen = sorted({row.step for row in data if row.kind == kind})
            extra = [n for n in seen if n not in due and not (n == steps[-1] and kind == "scalar")]
            if [n for n in due if n not in seen] or extra:
                text = f"The {kind}s do not lie on the caller's axis."
                findings.append(finding(text, due, seen, "dropped silently" if not extra else "coerced", observed.case))
        findings += unexpected(observed)
    return findings


def _final(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        rows = [row for row in observed.first_rows if row.step == 9]
        findings += judge_statistics(rows, "parameters", 9, observed.facts["after"], observed.case)
        invented = [row.tag for row in data_rows(rows) if row.tag.startswith("updates/")]
        if invented:
            findings.append(finding("An update was made up at close.", "no row", invented[0], "coerced", observed.case))
        early = sorted({row.step for row in data_rows(observed.first_rows)} - {7, 9})
        if early:
            findings.append(finding("A step that is not due has data rows.", [7, 9], early, "coerced", observed.case))
        findings += unexpected(observed)
    return findings


def same_in_both_spellings(observations: Observations) -> list[Finding]:
    """Compare the rows of a run by scope with those of the same run by ``step=``. Clause: STEP-6."""
    by_name = {observed.case.rpartition("/")[2]: observed for observed in observations.values()}
    scope, called = by_name["scope"], by_name["callable"]
    findings = [*unexpected(scope), *unexpected(called)]

    def told(observed: Observed) -> list[tuple[Any, ...]]:
        return [
            (row.kind, row.tag, row.step, row.value, row.counts, tuple(sorted(row.summary.items())))
            for row in observed.first_rows
            if row.kind != "text"
        ]

    first, second = told(scope), told(called)
    if not first:
        findings.append(finding("No row came.", "rows", "none", "dropped silently", scope.case))
    if first != second:
        missing = [row[:4] for row in first if row not in second]
        extra = [row[:4] for row in second if row not in first]
        text = "Both spellings of the step do not give the same rows."
        shown = f"only by scope: {missing[:2]}, only by step=: {extra[:2]}"
        if not missing and not extra:
            shown = "the same rows in another order"
        findings.append(finding(text, f"{len(first)} equal rows", shown, "dropped silently", called.case))
    return findings


def _first_rows(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        steps = observed.facts["steps"]
        first = steps[0] if steps else 0
        rows = observed.first_rows
        if observed.facts.get("rows_at_attach"):
            seen = observed.facts["rows_at_attach"]
            findings.append(finding("Rows came before any step.", "no row", seen, "coerced", observed.case))
        for what, mine in (
            ("heartbeat", [n for n, row in enumerate(rows) if is_run_row(row, "attached")]),
            (
                "manifest",
                [n for n, row in enumerate(rows) if row.tag == "torchlens/meta/manifest" and row.kind == "text"],
            ),
        ):
            data = next((n for n, row in enumerate(rows) if data_rows([row])), len(rows))
            where = f"{observed.case}: the {what}"
            if len(mine) != 1:
                findings.append(finding(f"The {what} is not one row.", 1, len(mine), "dropped silently", where))
            elif rows[mine[0]].step != first or mine[0] > data:
                seen = f"at step {rows[mine[0]].step}, as row {mine[0]}; data begins at row {data}"
                wanted = f"at step {first}, before the data"
                findings.append(
                    finding(f"The {what} does not ride the first seen step.", wanted, seen, "coerced", where)
                )
        findings += unexpected(observed)
    return findings


def _closure(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        for n, wanted in observed.facts["gradients"].items():
            findings += judge_statistics(observed.first_rows, "gradients", n, wanted, observed.case)
        told, right = run_rows(observed, "closure_evaluations"), observed.facts["evaluations"]
        if told != right:
            text = "torchlens/run/closure_evaluations is wrong."
            findings.append(finding(text, right, told or "no row", "dropped silently", observed.case))
        findings += unexpected(observed)
    return findings


def _several(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        values = {"left": [1.0, 1.0], "right": [2.0, 2.0, 2.0]}
        findings += judge_statistics(observed.first_rows, "gradients", 1, values, observed.case)
        findings += judge_statistics(observed.first_rows, "gradients", 2, {"left": values["left"]}, observed.case)
        stale: dict[Any, list[Row]] = {
            key: rows for key, rows in series(observed.first_rows, "gradients").items() if key[1:] == ("right", 2)
        }
        if stale:
            text = "An optimizer that did not step has rows."
            findings.append(finding(text, "no row", next(iter(stale)), "coerced", observed.case))
        if observed.report is not None and 2 not in {step for _, step in observed.report.skips}:
            text = "That one optimizer did not step is not named."
            findings.append(
                finding(text, "a named skip at 2", observed.report.skips, "dropped silently", observed.case)
            )
        findings += unexpected(observed)
    return findings


LAWS = (
    Law(
        "step.increasing",
        ("STEP-2",),
        "Do steps strictly increase, and does a refused step leave the session usable?",
        ("increasing",),
        _scripts,
        remedy="Compare with the last step of the segment when the scope opens, before anything changes.",
    ),
    Law(
        "step.segments",
        ("STEP-2",),
        "May a new segment go back when it is asked for, and do steps strictly increase within it?",
        ("segments",),
        _scripts,
        ("new-segment",),
        remedy="Forget the last step of the segment before, and nothing else.",
    ),
    Law(
        "step.scopes",
        ("STEP-3", "POINT-3"),
        "Do nested scopes and steps that are no step refuse, by code?",
        ("scopes",),
        _scripts,
        remedy="Take integers only: int() of a float or a bool hides a mistake of the loop.",
    ),
    Law(
        "step.source",
        ("STEP-1",),
        "Does an optimizer step without a source of the step refuse?",
        ("source",),
        _scripts,
        remedy="There is no counter to fall back on.",
    ),
    Law(
        "step.phases",
        ("STEP-7",),
        "Is a scope without its boundary refused by code, and does the run go on?",
        ("phases",),
        _scripts,
        remedy="Refuse when the scope closes; allow_missing_phases=True makes it a named skip.",
    ),
    Law(
        "step.overflows",
        ("STEP-7", "AMP-8"),
        "Is a scope whose step the scaler left out no missing boundary, but a step that is named?",
        ("overflows",),
        _scripts,
        ("amp",),
        remedy="Look at the scaler's own record of the step before update() replaces it.",
    ),
    Law(
        "step.exceptions",
        ("TAG-4", "CLOSE-2"),
        "Does the loop's own exception come out of the scope as it was, and may the run go on?",
        ("exceptions",),
        _scripts,
        remedy="Return False from __exit__, and raise nothing there while an exception unwinds.",
    ),
    Law(
        "step.machine",
        ("STEP-1", "STEP-2", "STEP-3", "STEP-4", "STEP-7", "STEP-8"),
        "Do engine and model agree on every script that a state machine tries?",
        ("machine",),
        _scripts,
        remedy="The shortest script that was found is shown; run it by hand.",
    ),
    Law(
        "step.cadence",
        ("STEP-4", "STEP-5"),
        "Are steps sampled on the caller's own axis, histograms on theirs, the first one always?",
        ("cadence",),
        _cadence,
        ("histograms",),
        remedy="Sample when step % every == 0, whatever number of steps were seen.",
    ),
    Law(
        "step.final-sample",
        ("STEP-4", "STAT-4"),
        "Are the parameters of the last seen step there after close, and no update made up for it?",
        ("final-sample",),
        _final,
        ("parameters", "updates"),
        remedy="Read the parameters once more at close.",
    ),
    Law(
        "step.spellings",
        ("STEP-1", "STEP-6"),
        "Do scope and step= give the same rows?",
        ("both-spellings",),
        same_in_both_spellings,
        ("step-callable", "parameters", "updates", "histograms"),
        remedy="Open and close the implicit block where a scope would have been.",
    ),
    Law(
        "step.first-rows",
        ("STEP-8",),
        "Do heartbeat and manifest ride the first seen step, before its data, and step 0 only in a run without one?",
        ("first-rows",),
        _first_rows,
        remedy="Hold both rows back until the first step is seen.",
    ),
    Law(
        "step.closure",
        ("STEP-10",),
        "Is the gradient of a closure optimizer the one of the first evaluation, and are evaluations counted?",
        ("closure",),
        _closure,
        ("closure", "histograms"),
        remedy="Look at the gradients after the first call of the closure, not before the step.",
    ),
    Law(
        "step.optimizers",
        ("STEP-11",),
        "Does each parameter belong to its own optimizer's boundary, and is an optimizer that did not step named?",
        ("several-optimizers",),
        _several,
        ("several-optimizers",),
        remedy="Keep one boundary an optimizer.",
    ),
)
"""The laws about the step."""
