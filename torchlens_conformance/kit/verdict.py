"""The verdict: one pure function from results, controls and declarations to a word and a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .model import (
    CONFORMANT,
    COULD_NOT_RUN,
    FAILED,
    INCOMPLETE,
    NONCONFORMANT,
    NOT_APPLICABLE,
    NOT_DECLARED,
    PASSED,
    VOID,
    WITH_DEVIATIONS,
    CheckResult,
    ControlResult,
)

WIREDNESS = "wiredness probe"
"""The control about the author's own reader; when it fails, the subject is to blame, not the kit."""

NEVER_EXCUSED = frozenset({"reader.sees-changes"})
"""Checks that no known deviation excuses: a reader that answers the same whatever is stored proves nothing at all."""

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the verdict depends on, as plain values.

    Args:
        levels: Every check of the profile with its level (``must`` or ``should``), in order.
        results: What the checks said; a check without a result did not run.
        controls: What the controls did.
        declared: The capability words that the subject declares.
        deviation_problems: What is wrong with the list of known deviations, one sentence each.
        in_process_read: Whether the subject is read in the process that wrote (MEM-1).
        partial: Whether the caller chose checks, so that the others were left out on purpose.
        trouble: What kept everything from running, a sentence; empty when nothing did.
    """

    levels: Mapping[str, str]
    results: Sequence[CheckResult]
    controls: Sequence[ControlResult]
    declared: Sequence[str]
    deviation_problems: Sequence[str] = ()
    in_process_read: bool = False
    partial: bool = False
    trouble: str = ""
    counts: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", count_outcomes(self.levels, self.results))


def count_outcomes(levels: Mapping[str, str], results: Sequence[CheckResult]) -> dict[str, int]:
    """Count what the checks of the profile said.

    ``expected`` are the checks that the profile asks of this subject: all but those not applicable and not declared.
    ``executed`` are those of them that gave an answer. ``failed`` leaves out known deviations, which are counted apart.
    """
    mine = [result for result in results if result.check in levels]
    number = {word: sum(result.outcome == word for result in mine) for word in (PASSED, NOT_APPLICABLE, NOT_DECLARED)}
    failed = [result for result in mine if result.outcome == FAILED]
    known = sum(result.deviation is not None for result in failed)
    return {
        "could_not_run": sum(result.outcome == COULD_NOT_RUN for result in mine),
        "executed": number[PASSED] + len(failed),
        "expected": len(levels) - number[NOT_APPLICABLE] - number[NOT_DECLARED],
        "failed": len(failed) - known,
        "known_deviations": known,
        "not_applicable": number[NOT_APPLICABLE],
        "not_declared": number[NOT_DECLARED],
        "not_run": len(levels) - len(mine),
        "passed": number[PASSED],
    }


def judge(evidence: Evidence) -> tuple[str, str]:
    """Return the verdict and the sentence that says why.

    In this order: a control that did not hold makes the run void; an unexcused failure of a must-check, or a reader
    that is not wired, makes the subject nonconformant; anything that was asked and not answered, and a wrong list of
    deviations, makes it incomplete; a known deviation, a failed should-check and a sink without a store cap it at
    with-deviations. A skip never raises a verdict.
    """
    for rule in (_void, _nonconformant, _incomplete, _deviating):
        verdict = rule(evidence)
        if verdict is not None:
            return verdict
    counts = evidence.counts
    return CONFORMANT, f"All {counts['expected']} checks that the profile asks of this sink ran and passed."


def _void(evidence: Evidence) -> tuple[str, str] | None:
    own = [control for control in evidence.controls if control.control != WIREDNESS]
    broken = [control.control for control in own if not control.ok]
    if broken:
        return VOID, f"The kit did not prove itself, so it says nothing about the sink: {_named(broken)} did not hold."
    return None


def _nonconformant(evidence: Evidence) -> tuple[str, str] | None:
    unwired = [control for control in evidence.controls if control.control == WIREDNESS and not control.ok]
    failed = [
        result.check
        for result in evidence.results
        if result.outcome == FAILED
        and (result.deviation is None or result.check in NEVER_EXCUSED)
        and evidence.levels.get(result.check) == "must"
    ]
    sentences = []
    if unwired:
        sentences.append(f"The wiredness probe did not hold: {unwired[0].seen.rstrip('.')}.")
    if failed:
        number = f"{len(failed)} of {evidence.counts['expected']} checks"
        sentences.append(f"{number} failed: {_named(failed)}.")
    return (NONCONFORMANT, " ".join(sentences)) if sentences else None


def _incomplete(evidence: Evidence) -> tuple[str, str] | None:
    if evidence.trouble:
        return INCOMPLETE, evidence.trouble
    missing = unanswered(evidence.levels, evidence.results)
    wiredness = any(control.control == WIREDNESS for control in evidence.controls)
    sentences = []
    if not evidence.declared:
        sentences.append("No capability is declared, so there is nothing to certify.")
    if missing and evidence.partial:
        sentences.append(f"Only a part of the profile was run; {len(missing)} checks were not.")
    elif missing:
        sentences.append(f"{len(missing)} checks that the profile asks gave no answer: {_named(missing)}.")
    if not missing and not _values_passed(evidence.results):
        sentences.append("No check of a value that the sink stored passed, so nothing shows that it stores anything.")
    if not wiredness:
        sentences.append("The wiredness probe did not run.")
    if not evidence.controls or all(control.control == WIREDNESS for control in evidence.controls):
        sentences.append("The controls did not run.")
    sentences += [f"The list of known deviations is wrong: {problem}" for problem in evidence.deviation_problems]
    return (INCOMPLETE, " ".join(sentences)) if sentences else None


def _deviating(evidence: Evidence) -> tuple[str, str] | None:
    known = [result.check for result in evidence.results if result.outcome == FAILED and result.deviation is not None]
    should = [result.check for result in evidence.results if result.outcome == FAILED and result.deviation is None]
    sentences = []
    if known:
        sentences.append(f"{len(known)} known deviations, each with its reason: {_named(known)}.")
    if should:
        sentences.append(f"{len(should)} checks that a sink should pass failed: {_named(should)}.")
    if evidence.in_process_read:
        sentences.append("The sink has no store: it was read in the process that wrote, which proves less (MEM-1).")
    return (WITH_DEVIATIONS, " ".join(sentences)) if sentences else None


def unanswered(levels: Mapping[str, str], results: Sequence[CheckResult]) -> list[str]:
    """Return the checks of the profile that gave no answer: no result at all, or could not run."""
    answered = {result.check for result in results if result.outcome != COULD_NOT_RUN}
    return [check for check in levels if check not in answered]


def _values_passed(results: Sequence[CheckResult]) -> bool:
    return any(
        result.outcome == PASSED or (result.outcome == FAILED and result.deviation is not None)
        for result in results
        if result.check.startswith("values.")
    )


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
