"""Laws about loss scales: observed, derived or unknown, and never asserted. Clauses: AMP."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from ...model import Finding
from ..looking import data_rows, finding, judge_statistics, run_rows, series, unexpected
from ..observation import Law, Observed
from .values import judge_histogram

Observations = Mapping[str, Observed]


def _scale(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        told, used = run_rows(observed, "amp_scale"), observed.facts["scales"]
        if told != used:
            text = "torchlens/run/amp_scale is not the scale that each step used."
            findings.append(finding(text, used, told or "no row", "coerced", observed.case))
        findings += unexpected(observed)
    return findings


def _overflow(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        for n in observed.facts["overflowed"]:
            updates = [
                row.tag for row in data_rows(observed.first_rows) if row.step == n and row.tag.startswith("updates/")
            ]
            if updates:
                text = "A step that the scaler left out has an update."
                findings.append(finding(text, "no row", updates[0], "coerced", f"{observed.case} at {n}"))
            skips = observed.report.skips if observed.report is not None else ()
            if ("amp_skipped", n) not in skips:
                text = "A step that the scaler left out is not named."
                findings.append(finding(text, f"amp_skipped at {n}", skips, "dropped silently", observed.case))
    return findings


def _corrected(observations: Observations) -> list[Finding]:
    """Numbers are those of the gradients without their scale, and that is told when it was derived."""
    findings = []
    for observed in observations.values():
        wanted = observed.facts["gradients"]
        over = observed.facts.get("overflowed", [])
        steps = [n for n in observed.facts.get("scales", {observed.facts.get("step"): 0}) if n not in over]
        for n in steps:
            findings += judge_statistics(observed.first_rows, "gradients", n, wanted, observed.case)
            histograms = series((row for row in observed.first_rows if row.kind == "histogram"), "gradients")
            for leaf, values in wanted.items():
                for row in histograms.get(("hist", leaf, n), []):
                    findings += judge_histogram(row, values, observed.case)
            extra = [key for key in series(observed.first_rows, "gradients") if key[0] == "overflow" and key[2] == n]
            if extra and all(
                isfinite(value) and abs(value) < 2.0**16 for values in wanted.values() for value in values
            ):
                text = "A gradient inside the grid was counted beyond it."
                findings.append(finding(text, "no row", extra[0], "coerced", observed.case))
        findings += unexpected(observed)
    return findings


def _derived(observations: Observations) -> list[Finding]:
    findings = _corrected(observations)
    for observed in observations.values():
        told = run_rows(observed, "amp_unscale_derived")
        over = observed.facts.get("overflowed", [])
        steps = [n for n in observed.facts.get("scales", {observed.facts.get("step"): 0}) if n not in over]
        # A scale of one leaves nothing to correct, so nothing need be told.
        if observed.facts.get("scale") != 1.0 and sorted(n for n in told if told[n] and n not in over) != steps:
            text = "That the numbers were derived is not told."
            wanted = f"torchlens/run/amp_unscale_derived at {steps}"
            findings.append(finding(text, wanted, told or "no row", "dropped silently", observed.case))
    return findings


def _observed(observations: Observations) -> list[Finding]:
    findings = _corrected(observations)
    for observed in observations.values():
        if any(run_rows(observed, "amp_unscale_derived").values()):
            text = "Numbers that were observed are told to be derived."
            findings.append(finding(text, "no row", "torchlens/run/amp_unscale_derived", "coerced", observed.case))
        told = set(run_rows(observed, "amp_scale").values())
        right: dict[str, set[float]] = {"disabled": {1.0}, "none": set(), "unscale": {512.0}, "step": {512.0}}
        wanted = right.get(observed.case.rpartition("/")[2])
        # Of a disabled scaler an engine may also say nothing.
        if wanted is not None and told != wanted and not (wanted == {1.0} and not told):
            findings.append(
                finding("The scale is wrong.", wanted or "no row", told or "no row", "coerced", observed.case)
            )
    return findings


def _several(observations: Observations) -> list[Finding]:
    findings = _scale(observations)
    for observed in observations.values():
        over: Mapping[int, list[str]] = observed.facts["overflowed"]
        skips = observed.report.skips if observed.report is not None else ()
        for n in observed.facts["scales"]:
            left_out = over.get(n, [])
            wanted = {leaf: values for leaf, values in observed.facts["gradients"].items() if leaf not in left_out}
            findings += judge_statistics(observed.first_rows, "gradients", n, wanted, observed.case)
            updated = {leaf for _, leaf, step in series(observed.first_rows, "updates") if step == n}
            if updated != set(wanted):
                text = "The updates of a step are not those of the optimizers that stepped."
                findings.append(finding(text, sorted(wanted), sorted(updated), "coerced", f"{observed.case} at {n}"))
            if left_out and ("amp_skipped", n) not in skips:
                text = "An optimizer that the scaler left out is not named."
                findings.append(finding(text, f"amp_skipped at {n}", skips, "dropped silently", observed.case))
        told = run_rows(observed, "amp_unscale_derived")
        # In the one case the second optimizer steps with the scale in its gradients, in the other none does.
        derived = list(observed.facts["scales"]) if observed.case.endswith("/stages") else []
        if sorted(n for n in told if told[n]) != derived:
            text = "That numbers were derived is not told where it holds, and only there."
            findings.append(finding(text, f"at {derived}", told or "no row", "dropped silently", observed.case))
    return findings


def _invalid(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        first = next((event for event in observed.events if event.what != "attach"), None)
        if first is None or (first.what, first.code) != ("open", "tracker_scale_invalid"):
            late = [event.code for event in observed.events if event.code == "tracker_scale_invalid"]
            seen = f"{first.code or first.outcome if first else 'nothing'}{', and later the code' if late else ''}"
            text = "A scale that is no power of two is not refused when the scope opens."
            findings.append(finding(text, "tracker_scale_invalid", seen, "coerced", observed.case))
        findings += unexpected(observed, among=("train", "leave", "step"))
    return findings


LAWS = (
    Law(
        "amp.scale",
        ("AMP-1", "AMP-7"),
        "Is the recorded scale the one that each step used, also of a step that was left out?",
        ("scale-history",),
        _scale,
        ("amp", "histograms", "updates"),
        remedy="Read it at the boundary, before update(); for a step that was left out, when the scope opens.",
    ),
    Law(
        "amp.observed",
        ("AMP-2", "AMP-5"),
        "Are gradients that carry no scale any more told as they are?",
        ("unscaled",),
        _observed,
        ("amp", "histograms"),
        remedy="Correct only what still carries the scale.",
    ),
    Law(
        "amp.derived",
        ("AMP-3",),
        "Are statistics and counts of gradients that still carry the scale corrected exactly, and is that told?",
        ("derived",),
        _derived,
        ("amp", "histograms"),
        remedy="Read the stage: READY at the boundary means the scale is still in. Count on a wide grid and shift.",
    ),
    Law(
        "amp.derived-half",
        ("AMP-3",),
        "Is the same exact for scaled gradients over the whole range of fp16 and bf16?",
        ("derived-half",),
        _derived,
        ("amp", "histograms"),
        remedy="Count the scaled numbers as they are, in float64, and shift the counts; a quotient in fp16 is rounded.",
    ),
    Law(
        "amp.unknown",
        ("AMP-4",),
        "Are the numbers of a scaler whose stage cannot be read those that were measured?",
        ("unknown",),
        _observed,
        ("amp", "histograms"),
        remedy="Unknown is not a factor of one, and not the scale either.",
    ),
    Law(
        "amp.skipped",
        ("AMP-8", "STEP-7", "STAT-4"),
        "Is a step that the scaler left out named, and without an update?",
        ("scale-history",),
        _overflow,
        ("amp", "histograms", "updates"),
        remedy="Keep a reference to the scaler's records from the opening of the scope.",
    ),
    Law(
        "amp.fused",
        ("AMP-7",),
        "Are gradients of an optimizer that unscales inside its own step corrected?",
        ("fused",),
        _derived,
        ("amp", "fused", "histograms", "updates"),
        remedy="Look at optimizer.grad_scale at the boundary, not at which call was made.",
    ),
    Law(
        "amp.fused-skipped",
        ("AMP-7", "AMP-8"),
        "Is a step that such an optimizer leaves out named, without an update, at the scale that was used?",
        ("fused",),
        lambda observations: [*_overflow(observations), *_scale(observations)],
        ("amp", "fused", "histograms", "updates"),
        remedy="Look at optimizer.found_inf at the boundary.",
    ),
    Law(
        "amp.several",
        ("AMP-6",),
        "Has each of several optimizers under one scaler a stage of its own, also when only one of them overflows?",
        ("amp-several",),
        _several,
        ("amp", "several-optimizers", "histograms", "updates"),
        remedy="Read the stage of the optimizer whose boundary it is.",
    ),
    Law(
        "amp.invalid-scale",
        ("AMP-3",),
        "Is a scale that is no power of two refused when the scope opens, and never inside optimizer.step?",
        ("invalid-scale",),
        _invalid,
        ("amp",),
        remedy="Look at the scale when the scope opens.",
    ),
)
"""The laws about loss scales."""
