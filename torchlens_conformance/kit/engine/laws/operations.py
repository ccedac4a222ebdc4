"""Laws about single operations of a forward: values, facets, consent, disclosure. Clauses: TIER-2, TIER-3."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...model import Finding
from ..looking import finding, is_run_row, series, unexpected
from ..observation import ACKNOWLEDGED, REFUSED, Law, Observed
from .conduct import differing
from .modules import judge_outputs

Observations = Mapping[str, Observed]

_LABEL = re.compile(r"softmax_(\d+)_(\d+)")


def _case(observations: Observations, name: str) -> list[Observed]:
    return [observed for case, observed in observations.items() if case.endswith(f"/{name}")]


def _leaves(observed: Observed) -> list[str]:
    """Return the leaves of all operations, facets left out, in the order of the calls."""
    rows = series(observed.first_rows, "activations")
    whole = {leaf for _, leaf, _ in rows if _LABEL.fullmatch(leaf)}
    return sorted(whole, key=lambda leaf: int(_LABEL.fullmatch(leaf)[1]))  # type: ignore[index]


def _wrong_labels(observed: Observed, calls: int) -> list[Finding]:
    """A label per call, k counted from 1, n growing with k; and no leaf of another form."""
    leaves = _leaves(observed)
    numbers = [tuple(map(int, _LABEL.fullmatch(leaf).groups())) for leaf in leaves]  # type: ignore[union-attr]
    others = {leaf for _, leaf, _ in series(observed.first_rows, "activations") if not _LABEL.match(leaf)}
    right = [k for k, _ in numbers] == list(range(1, calls + 1)) and sorted(n for _, n in numbers) == [
        n for _, n in numbers
    ]
    if right and not others:
        return []
    wanted = ", ".join(f"softmax_{k}_<n>" for k in range(1, calls + 1))
    return [finding("The labels are others.", wanted, ", ".join([*leaves, *others]), "coerced", observed.case)]


def _values(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in _case(observations, "whole"):
        findings += _compared(observed, lambda leaf, parts: {leaf: parts[""]})
    return findings


def _compared(observed: Observed, wanted_of: Any) -> Iterator[Finding]:
    """Compare every step's rows with what the calls gave; ``wanted_of(leaf, parts)`` says which leaves there are."""
    yield from unexpected(observed)
    outputs = observed.facts["outputs"]
    wrong = _wrong_labels(observed, max((len(calls) for calls in outputs.values()), default=1))
    yield from wrong
    if wrong:
        return
    for n, calls in outputs.items():
        for leaf, parts in zip(_leaves(observed), calls):
            yield from judge_outputs(observed, "activations", n, wanted_of(leaf, parts))


def _facets(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in _case(observations, "heads"):
        leaves = {leaf for _, leaf, _ in series(observed.first_rows, "activations")}
        under: dict[str, list[str]] = {}
        for leaf in sorted(leaves, key=lambda leaf: [int(part) for part in re.findall(r"\d+", leaf)]):
            label, _, facet = leaf.partition("/")
            if facet:
                under.setdefault(label, []).append(leaf)

        def named(
            leaf: str, parts: Mapping[str, Sequence[float]], under: Mapping[str, Sequence[str]] = under
        ) -> dict[str, Sequence[float]]:
            heads = [values for name, values in parts.items() if name]
            mine = list(under.get(leaf, ())) or [f"{leaf}/<facet>"]
            return {leaf: parts[""], **dict(zip(mine, heads))}

        findings += _compared(observed, named)
        for label in _leaves(observed):
            heads = len(next(iter(observed.facts["outputs"].values()))[0]) - 1
            if len(under.get(label, ())) != heads:
                where = f"{observed.case}: {label}"
                findings.append(
                    finding("There is not one series a facet.", heads, len(under.get(label, ())), "coerced", where)
                )
    return findings


def _first_forward(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in _case(observations, "repeated"):
        findings += _compared(observed, lambda leaf, parts: {leaf: parts[""]})
        twice = [key for key, rows in series(observed.first_rows, "activations").items() if len(rows) > 1]
        if twice:
            where = f"{observed.case}: {twice[0]}"
            findings.append(finding("A series has several points at one step.", "one", "several", "coerced", where))
        skips = observed.report.skips if observed.report is not None else ()
        for n in observed.facts["outputs"]:
            if not any(step == n for _, step in skips):
                text = "A forward that is not observed has no named skip."
                findings.append(finding(text, f"a skip at {n}", f"{skips}", "dropped silently", observed.case))
    return findings


def _consent(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in _case(observations, "without-consent"):
        findings += _refused(observed, "watch_forward_wrap_consent_required")
        if observed.facts["calls"]:
            text = "The model was called before consent was asked for."
            findings.append(finding(text, 0, observed.facts["calls"], "coerced", observed.case))
    return findings


def _refused(observed: Observed, code: str) -> Iterator[Finding]:
    event = observed.events[0]
    if event.outcome != REFUSED or event.code != code:
        text = "It is not refused, or not by its code."
        yield finding(text, code, event.code or event.outcome, "coerced", observed.case)
    yield from _left_behind(observed)


def _left_behind(observed: Observed) -> Iterator[Finding]:
    changed = [part for part, value in observed.facts["before"].items() if observed.facts["after"][part] != value]
    if changed or any(observed.rows.values()):
        text = "An attach that failed left something behind."
        yield finding(text, "nothing", ", ".join(changed) or "rows", "coerced", observed.case)


_CODES = {
    "gradients": "watch_tier_unavailable",
    "no-such-function": "watch_selector_matched_no_sites",
    "facets-that-do-not-fit": "watch_facet_shape_invalid",
}


def _refusals(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for name, code in _CODES.items():
        for observed in _case(observations, name):
            findings += _refused(observed, code)
    for observed in _case(observations, "failing-forward"):
        # In whose words it fails is its own affair; that it does, and that nothing stays, is not.
        if observed.events[0].outcome == ACKNOWLEDGED:
            text = "It attached although the forward raised."
            findings.append(finding(text, "it raises", ACKNOWLEDGED, "coerced", observed.case))
        findings += _left_behind(observed)
    return findings


def _disclosed(observations: Observations) -> list[Finding]:
    findings: list[Finding] = []
    for observed in _case(observations, "disclosed"):
        findings += unexpected(observed)
        warned = [text for text in observed.facts["warned"] if "watch_op_grain_cost_disclosed" in text]
        if len(warned) != 1:
            text = "There is not one warning with the code watch_op_grain_cost_disclosed."
            findings.append(finding(text, 1, len(warned), "dropped silently", observed.case))
        rows = [row for row in observed.first_rows if is_run_row(row, "op_grain_overhead_median_x")]
        told = [(row.step, type(row.value) in (int, float) and row.value > 0) for row in rows]
        if told != [(30, True)]:
            shown = [(row.step, row.value) for row in rows]
            text = "The ratio is not one positive scalar on the first step."
            findings.append(finding(text, "one at 30", shown, "dropped silently", observed.case))
        texts = [row for row in observed.first_rows if row.tag == "torchlens/meta/op_grain_calibration" and row.text]
        if [row.step for row in texts] != [30]:
            text = "The calibration is not one text on the first step."
            findings.append(finding(text, "one at 30", f"{len(texts)}", "dropped silently", observed.case))
    return findings


def _kept(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        findings += differing(observed, "Watching operations changed what the forward gives, or what it leaves.")
        findings += unexpected(observed)
    return findings


def _plain(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        plain = observed.facts.get("plain", {})
        wrapped = [str(at) for at, is_plain in plain.items() if not is_plain and at not in (0, 2, 4)]
        if wrapped or not plain:
            text = "Where nothing is observed, the model's forward is not its own bound method."
            findings.append(finding(text, "the method", ", ".join(wrapped) or "no run", "coerced", observed.case))
    return findings


def _checkpointed(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        findings += differing(observed, "Watching changed what is trained under selective activation checkpointing.")
        arrived = {step for _, _, step in series(observed.first_rows, "activations")}
        if arrived != {0, 1, 2}:
            text = "No activations arrived, so being no burden proves nothing."
            findings.append(finding(text, "rows on every step", f"{arrived}", "dropped silently", observed.case))
        findings += unexpected(observed)
    return findings


_NEEDS = ("operations",)

LAWS = (
    Law(
        "op.values",
        ("TIER-3", "STAT-1", "GRID-2"),
        "Are statistics and counts of an operation's output those of the moment in which it was made, under its label?",
        ("operations",),
        _values,
        (*_NEEDS, "histograms"),
        remedy="Reduce the output where it is made: a later operation may overwrite it.",
    ),
    Law(
        "op.facets",
        ("TIER-3",),
        "Has every facet a series of its own, with the values of its part of the axis, in order?",
        ("operations",),
        _facets,
        (*_NEEDS, "histograms"),
        remedy="Split along the axis that was asked for, into equal consecutive parts.",
    ),
    Law(
        "op.first-forward",
        ("TIER-3",),
        "Is the first forward of a step observed, and a further one a named skip that changes nothing?",
        ("operations",),
        _first_forward,
        (*_NEEDS, "histograms"),
        remedy="Take nothing from a second forward, and name it.",
    ),
    Law(
        "op.consent",
        ("TIER-2",),
        "Is op grain without consent refused by its code, before the model is touched or called?",
        ("operations-attach",),
        _consent,
        _NEEDS,
        remedy="Ask for allow_forward_wrap=True before discovery.",
    ),
    Law(
        "op.refusals",
        ("TIER-2", "TIER-3"),
        "Are other signals, functions that do not occur, and facets that do not fit refused, with nothing left behind?",
        ("operations-attach",),
        _refusals,
        _NEEDS,
        remedy="Judge the choice by what discovery saw; put back random states and buffers also when a forward raises.",
    ),
    Law(
        "op.disclosed",
        ("TIER-2",),
        "Is the measured cost told by one warning, one scalar and one text, on the first step?",
        ("operations-attach",),
        _disclosed,
        _NEEDS,
        remedy="Measure at attach, warn once, and send both rows with the heartbeat.",
    ),
    Law(
        "op.forward-kept",
        ("TIER-2", "TIER-3", "CLOSE-3"),
        "Are forwards, buffers, modes and random states those of an unwatched run, from attach to the end?",
        ("operations-kept",),
        _kept,
        _NEEDS,
        remedy="Observe without changing what runs, and put back all that forwards at attach changed.",
    ),
    Law(
        "op.plain-forward",
        ("TIER-3", "CLOSE-3"),
        "Is the model's forward its own bound method outside of sampled steps, and after close?",
        ("operations-kept",),
        _plain,
        _NEEDS,
        remedy="Take the forward's place when a sampled step begins, and give it back when it ends.",
    ),
    Law(
        "op.checkpointed",
        ("TIER-1", "TIER-3", "ATTACH-6"),
        "Is a watched training under selective activation checkpointing the unwatched one, bit for bit?",
        ("checkpointed",),
        _checkpointed,
        (*_NEEDS, "activations", "histograms"),
        remedy="Leave the modes of the loop while you compute: the checkpoint's cache counts operations.",
    ),
)
"""The laws about single operations."""
