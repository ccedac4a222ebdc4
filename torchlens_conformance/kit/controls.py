"""The controls: every run first shows that the kit passes what is right and catches what is wrong.

Each perfect subject must pass, and each planted defect must fail by every check that is named for it. The controls run
side by side in worker processes, on the small corpus.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from .defects import DEFECTS
from .engine import run_checks
from .model import COULD_NOT_RUN, FAILED, CheckResult, ControlResult
from .perfect import PERFECT
from .processes import Channel, Limits, run_child

_WORKERS = 4
_LIMITS = Limits(timeout=120.0, memory=8 << 30, output=64 << 20)
_STUCK = "it gave no answer"


def run_controls(*, checks: Sequence[str]) -> tuple[ControlResult, ...]:
    """Run every control and return what each did, in a fixed order.

    Args:
        checks: The check ids of the profile; a perfect subject must pass all of them that its design can pass.
    """
    names = [f"perfect: {perfect.id}" for perfect in PERFECT] + [f"defect: {defect.id}" for defect in DEFECTS]
    queue_end, feed_end = os.pipe()
    try:
        # A pipe is the queue: whichever worker is free reads the next index.
        os.write(feed_end, bytes(range(len(names))))
        os.close(feed_end)
        work = partial(_work, queue_end, tuple(checks))
        with ThreadPoolExecutor(_WORKERS) as pool:
            outcomes = list(pool.map(lambda _: run_child(work, limits=_LIMITS), range(_WORKERS)))
    finally:
        os.close(queue_end)
    seen = {record[1]: record[2] for outcome in outcomes for record in outcome.records if record[0] == "control"}
    why = "; ".join(sorted({outcome.ended for outcome in outcomes if outcome.ended != "ok"}))
    stuck = f"{_STUCK} ({why})" if why else _STUCK
    return tuple(
        seen.get(index, ControlResult(name, "an answer", stuck, False)) for index, name in enumerate(names)
    )


def _work(queue_end: int, checks: tuple[str, ...], channel: Channel) -> None:
    while index := os.read(queue_end, 1):
        channel.send("control", index[0], _control(index[0], checks))


def _control(index: int, checks: tuple[str, ...]) -> ControlResult:
    if index < len(PERFECT):
        perfect = PERFECT[index]
        asked = [check for check in checks if check not in perfect.excused]
        return judge_perfect(perfect.id, run_checks(perfect.subject, checks=asked).results)
    defect = DEFECTS[index - len(PERFECT)]
    return judge_defect(defect.id, run_checks(defect.subject, checks=defect.killed_by).results)


def judge_perfect(identity: str, results: Sequence[CheckResult]) -> ControlResult:
    """Return whether a perfect subject passed everything that it was asked."""
    wrong = [f"{result.check} {result.outcome}" for result in results if result.outcome in (FAILED, COULD_NOT_RUN)]
    return ControlResult(
        f"perfect: {identity}",
        "pass",
        "passed" if not wrong and results else ", ".join(wrong) or "nothing was asked",
        not wrong and bool(results),
    )


def judge_defect(identity: str, results: Sequence[CheckResult]) -> ControlResult:
    """Return whether a planted defect failed by every check that is named for it."""
    named = ", ".join(result.check for result in results)
    missed = [f"{result.check} {result.outcome}" for result in results if result.outcome != FAILED]
    return ControlResult(
        f"defect: {identity}",
        f"fail by {named}",
        ("failed by them" if not missed else ", ".join(missed)) if results else "nothing was asked",
        bool(results) and not missed,
    )
