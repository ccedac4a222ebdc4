"""Laws about outputs of modules: their values, and a forward that stays as it was. Clauses: TIER-1, TIER-4, STEP-6."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...model import Finding
from ..looking import finding, judge_statistics, run_rows, series, unexpected
from ..observation import ACKNOWLEDGED, Law, Observed
from .conduct import differing
from .steps import same_in_both_spellings
from .values import judge_histogram

Observations = Mapping[str, Observed]
Calls = Sequence[Sequence[float]]


def _outputs(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in observations.values():
        if not any(observed.facts["outputs"].values()):
            findings.append(finding("No forward was seen.", "outputs", "none", "dropped silently", observed.case))
        for n, seen in observed.facts["outputs"].items():
            once = {leaf: calls[0] for leaf, calls in seen.items() if len(calls) == 1}
            findings += judge_outputs(observed, "activations", n, once)
        findings += unexpected(observed)
    return findings


def judge_outputs(observed: Observed, family: str, n: int, wanted: Mapping[str, Sequence[float]]) -> Iterator[Finding]:
    """Compare statistics and histograms of a family at one step with the values that were there. Clause: TIER-1."""
    yield from judge_statistics(observed.first_rows, family, n, wanted, observed.case)
    histograms = series((row for row in observed.first_rows if row.kind == "histogram"), family)
    for leaf, values in wanted.items():
        rows = histograms.get(("hist", leaf, n), [])
        if len(rows) != 1:
            where = f"{observed.case}: {family}/hist/{leaf} at {n}"
            yield finding("There is not one histogram.", "one", f"{len(rows)}", "dropped silently", where)
        for row in rows:
            yield from judge_histogram(row, values, observed.case)


def _shared(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in observations.values():
        skips = observed.report.skips if observed.report is not None else ()
        for n, seen in observed.facts["outputs"].items():
            several = {leaf: calls for leaf, calls in seen.items() if len(calls) > 1}
            for leaf, calls in several.items():
                named = any(step == n for _, step in skips)
                findings += _one_of_readings(observed, n, leaf, calls, named=named)
    if not any(calls for observed in observations.values() for calls in observed.facts["outputs"].values()):
        findings.append(finding("No forward was seen.", "outputs", "none", "dropped silently"))
    return findings


def _one_of_readings(observed: Observed, n: int, leaf: str, calls: Calls, *, named: bool) -> Sequence[Finding]:
    """All calls together, or one of them when the step has a named skip; one point a series either way."""
    twice = [key for key, rows in series(observed.first_rows, "activations").items() if len(rows) > 1]
    if twice:
        where = f"{observed.case}: {twice[0]}"
        return [finding("A series has several points at one step.", "one point", "several", "coerced", where)]
    readings = [[value for call in calls for value in call], *(calls if named else ())]
    found = [list(judge_outputs(observed, "activations", n, {leaf: values})) for values in readings]
    return min(found, key=len)


def _gradients(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in observations.values():
        for n, seen in observed.facts["gradients"].items():
            wanted = {leaf: calls[0] for leaf, calls in seen.items()}
            findings += judge_outputs(observed, "activation_grads", n, wanted)
        told = sorted(n for n, value in run_rows(observed, "amp_unscale_derived").items() if value)
        right = list(observed.facts["gradients"]) if observed.case.endswith("/scaled") else []
        if told != right:
            text = "That the numbers were derived is not told where it holds, and only there."
            findings.append(finding(text, f"at {right}", f"at {told}", "dropped silently", observed.case))
        findings += unexpected(observed)
    return findings


def _kept(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        findings += differing(observed, "Watching outputs changed what the forward gives, or what it leaves.")
        findings += unexpected(observed)
    return findings


def _explicit(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        if observed.events[0].outcome == ACKNOWLEDGED:
            text = f"Outputs of modules were asked for {observed.case.rpartition('/')[2].replace('-', ' ')}=."
            findings.append(finding(text, "a refusal", "it attached", "coerced", observed.case))
        elif observed.facts["before"] != observed.facts["after"] or any(observed.rows.values()):
            text = "A refused attach left a hook or a row behind."
            findings.append(finding(text, "nothing", "hooks or rows", "coerced", observed.case))
    return findings


_NEEDS = ("activations", "histograms")

LAWS = (
    Law(
        "module.values",
        ("TIER-1", "STAT-1", "GRID-2"),
        "Are statistics and counts of a module's output those that an independent hook saw?",
        ("outputs",),
        _outputs,
        _NEEDS,
        remedy="Reduce the output that the hook was given, once, on sampled steps.",
    ),
    Law(
        "module.root",
        ("TAG-2", "TIER-1"),
        "Can the output of the model itself be watched, under the leaf _root?",
        ("root-output",),
        _outputs,
        _NEEDS,
        remedy="The root module has an empty name, which no tag can hold.",
    ),
    Law(
        "module.shared",
        ("TIER-1", "TAG-1"),
        "Has a module that runs twice in a step one point a series, of all its calls, or of one with a named skip?",
        ("shared-outputs",),
        _shared,
        _NEEDS,
        remedy="Merge the calls; a second point under the same tag and step hides the first one.",
    ),
    Law(
        "module.gradients",
        ("TIER-4", "AMP-3"),
        "Are statistics of gradients of outputs those that reached them, without the loss scale?",
        ("output-gradients",),
        _gradients,
        ("activation-grads", "histograms", "amp"),
        remedy="A backward under a scaler carries the scale, whatever the optimizer does with it later.",
    ),
    Law(
        "module.forward-kept",
        ("TIER-0", "TIER-1"),
        "Are the forward's result, buffers, modes and random states those of an unwatched run, from attach on?",
        ("forward-kept",),
        _kept,
        ("activations",),
        remedy="Return None from the hook, and put back all that a forward at attach changed.",
    ),
    Law(
        "module.spellings",
        ("STEP-6",),
        "Do scope and step= give the same statistics of outputs, although the forward comes before the boundary?",
        ("module-spellings",),
        same_in_both_spellings,
        ("activations", "step-callable", "histograms"),
        remedy="Keep what the forward gave until the block opens at the boundary.",
    ),
    Law(
        "module.explicit",
        ("TIER-1",),
        "Is watching outputs refused without select= or inputs=, with nothing left behind?",
        ("explicit",),
        _explicit,
        ("activations",),
        remedy="Refuse before the first hook: all modules of a model are never what was meant.",
    ),
)
"""The laws about outputs of modules."""
