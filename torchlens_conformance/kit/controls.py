"""The controls: every run first shows that the kit passes what is right and catches what is wrong.

Each perfect subject must pass, and each planted defect must fail by every check that is named for it. The controls run
side by side in worker processes, on the small corpus.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from .checking import run_checks
from .defects import DEFECTS
from .model import COULD_NOT_RUN, FAILED, CheckResult, ControlResult
from .perfect import PERFECT
from .processes import OK, Channel, Limits, run_child

_WORKERS = 4
_PERFECT = tuple(perfect for perfect in PERFECT if perfect.id != "plain")
# Each planted defect is the plain sink with one thing wrong, so that sink is asked in CI and not by every run.
_LIMITS = Limits(timeout=120.0, memory=8 << 30, output=64 << 20)
_SHORT, _LONG = 1.0, 20.0
# Seconds for each process of a control; a defect that hangs uses all of them.
_LONGEST = 600


def run_controls(*, checks: Sequence[str]) -> tuple[ControlResult, ...]:
    """Run every control and return what each did, in a fixed order.

    Args:
        checks: The check ids of the profile; a perfect subject must pass all of them that its design can pass.
    """
    names = _names()
    outcome = run_child(partial(_share_out, len(names), tuple(checks)), limits=_LIMITS)
    seen = {record[1]: record[2] for record in outcome.records if record[0] == "control"}
    stuck = "it gave no answer" if outcome.ended == OK else f"it gave no answer: {outcome.ended}"
    return tuple(seen.get(index, ControlResult(name, "an answer", stuck, False)) for index, name in enumerate(names))


def _share_out(number: int, checks: tuple[str, ...], channel: Channel) -> None:
    """Fork the workers, and wait for all of them; forked here, where no other thread can hold a lock."""
    queue_end, feed_end = os.pipe()
    # A pipe is the queue: whichever worker is free reads the next index.
    os.write(feed_end, bytes(range(number)))
    os.close(feed_end)
    workers = []
    for _ in range(_WORKERS):
        pid = os.fork()
        if pid == 0:
            _be_worker(queue_end, checks, channel)
        workers.append(pid)
    for pid in workers:
        os.waitpid(pid, 0)


def _be_worker(queue_end: int, checks: tuple[str, ...], channel: Channel) -> NoReturn:
    code = 1
    try:
        while index := os.read(queue_end, 1):
            # Written at once, since it is shorter than a pipe's atomic write: workers never mix their records.
            channel.send("control", index[0], _control_or_fault(index[0], checks))
        code = 0
    finally:
        os._exit(code)


def _control_or_fault(index: int, checks: tuple[str, ...]) -> ControlResult:
    try:
        return _control(index, checks)
    except Exception as error:
        # A fault of ours: the run is void, and the others still tell what they did.
        return ControlResult(_names()[index], "an answer", f"{type(error).__name__}: {error}"[:_LONGEST], False)


def _names() -> list[str]:
    return [f"perfect: {perfect.id}" for perfect in _PERFECT] + [f"defect: {defect.id}" for defect in DEFECTS]


def _control(index: int, checks: tuple[str, ...]) -> ControlResult:
    if index < len(_PERFECT):
        perfect = _PERFECT[index]
        asked = [check for check in checks if check not in perfect.excused]
        return judge_perfect(perfect.id, run_checks(perfect.subject, checks=asked).results)
    defect = DEFECTS[index - len(_PERFECT)]
    timeout = _SHORT if defect.id.endswith("-hangs") else _LONG
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
