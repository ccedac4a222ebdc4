"""The controls: every run first shows that the kit passes what is right and catches what is wrong.

Each perfect subject must pass, and each planted defect must fail by every check that is named for it. The controls run
side by side in worker processes, on the small corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .checking import run_checks
from .defects import DEFECTS
from .keepers import Fault, side_by_side
from .model import COULD_NOT_RUN, FAILED, CheckResult, ControlResult
from .perfect import PERFECT

_WORKERS = 4
_PERFECT = tuple(perfect for perfect in PERFECT if perfect.id != "plain")
# Each planted defect is the plain sink with one thing wrong, so that sink is asked in CI and not by every run.
_SHORT, _LONG = 1.0, 20.0
# Seconds for each process of a control; a defect that hangs uses all of them.
_LONGEST_FIRST = ("-hangs", "slows-down", "torn-on-kill", "perfect: memory", "perfect: jsonl", "grows-without-bound")
_LONGEST = 600


def run_controls(*, checks: Sequence[str]) -> tuple[ControlResult, ...]:
    """Run every control and return what each did, in a fixed order.

    Args:
        checks: The check ids of the profile; a perfect subject must pass all of them that its design can pass.
    """
    names = _names()
    # The longest first, so that none of them runs alone at the end.
    order = sorted(range(len(names)), key=lambda index: not names[index].endswith(_LONGEST_FIRST))
    # More than there are processors usually: some controls wait for what hangs.
    told_in_order = side_by_side([partial(_control, index, tuple(checks)) for index in order], workers=_WORKERS)
    seen = [told for _, told in sorted(zip(order, told_in_order), key=lambda pair: pair[0])]
    return tuple(
        # A fault of ours: the run is void, and the others still tell what they did.
        ControlResult(name, "an answer", f"it gave no answer: {told.text}"[:_LONGEST], False)
        if isinstance(told, Fault)
        else told
        for name, told in zip(names, seen)
    )


def _names() -> list[str]:
    return [f"perfect: {perfect.id}" for perfect in _PERFECT] + [f"defect: {defect.id}" for defect in DEFECTS]


def _control(index: int, checks: tuple[str, ...]) -> ControlResult:
    if index < len(_PERFECT):
        perfect = _PERFECT[index]
        asked = [check for check in checks if check not in perfect.excused]
        return judge_perfect(perfect.id, run_checks(perfect.subject, checks=asked).results)
    defect = DEFECTS[index - len(_PERFECT)]
    timeout = _SHORT if defect.hangs else _LONG
    return judge_defect(defect.id, run_checks(defect.subject, checks=defect.killed_by, timeout=timeout).results)


def judge_perfect(identity: str, results: Sequence[CheckResult]) -> ControlResult:
    """Return whether a perfect subject passed everything that it was asked."""
    wrong = [f"{result.check} {result.outcome}" for result in results if result.outcome in (FAILED, COULD_NOT_RUN)]
    return ControlResult(
        f"perfect: {identity}",
        "pass",
        ("passed" if not wrong else ", ".join(wrong)[:_LONGEST]) if results else "nothing was asked",
        not wrong and bool(results),
    )


def judge_defect(identity: str, results: Sequence[CheckResult]) -> ControlResult:
    """Return whether a planted defect failed by every check that is named for it."""
    named = ", ".join(result.check for result in results)
    missed = [f"{result.check} {result.outcome}" for result in results if result.outcome != FAILED]
    return ControlResult(
        f"defect: {identity}",
        f"fail by {named}",
        ("failed by them" if not missed else ", ".join(missed)[:_LONGEST]) if results else "nothing was asked",
        bool(results) and not missed,
    )
