"""Asks an engine: runs the scenarios in child processes, and every law about what was observed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from reference_sinks.comet_offline import QUIET

from ..keepers import Fault, side_by_side
from ..model import COULD_NOT_RUN, FAILED, NOT_APPLICABLE, NOT_DECLARED, PASSED, CheckResult, Finding
from ..processes import OK, Channel, Limits, run_child
from .adapter import Engine, lacks_of
from .laws import LAWS, get_law
from .looking import judge_law
from .observation import PACKAGE_MISSING, Law, NotApplicable, Observed, PackageMissing

TIMEOUT = 120.0
"""Seconds for one scenario: the longest take five on an idle processor."""

FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "hf-callback": ("transformers.trainer", "accelerate"),
    "lightning-callback": ("lightning.pytorch",),
}
"""By ability, what its scenarios import."""


def ask(engine: Engine, laws: Sequence[Law] = LAWS, *, workers: int = 2) -> tuple[CheckResult, ...]:
    """Return what each law says about an engine.

    Each scenario runs in a process of its own, so that an engine which crashes or hangs leaves the others an answer.

    Args:
        engine: The engine.
        laws: The laws to ask.
        workers: How many scenarios run side by side.
    """
    asked = [law for law in laws if not missing_ability(law, engine)]
    import_once(asked)
    from .scenarios import SCENARIOS

    wanted = {scenario for law in asked for scenario in law.scenarios}
    names = [name for name in SCENARIOS if name in wanted]
    answers = side_by_side([partial(observe, engine, name) for name in names], workers=workers)
    seen = {
        name: Answer({}, answer.text) if isinstance(answer, Fault) else answer for name, answer in zip(names, answers)
    }
    return tuple(judged(law, engine, seen) for law in laws)


def import_once(laws: Iterable[Law] = LAWS) -> None:
    """Import here what each forked child would import for itself, which takes longer than most scenarios."""
    for name in ("torch", "torch._dynamo"):
        with suppress(ImportError):
            import_module(name)
    needed = {word for law in laws for word in law.needs}
    with warnings.catch_warnings():
        # What frameworks warn of when they are imported is no matter of the laws.
        warnings.simplefilter("ignore")
        for ability, names in FRAMEWORKS.items():
            if ability in needed:
                # transformers imports Comet where it is installed.
                os.environ.update(QUIET)
                with suppress(Exception):
                    for name in names:
                        import_module(name)


class Answer:
    """What one scenario gave.

    Args:
        observations: By case.
        trouble: Why it did not end, or empty.
        absent: Why this machine cannot run it, or empty.
    """

    def __init__(self, observations: Mapping[str, Observed], trouble: str = "", absent: str = "") -> None:
        self.observations, self.trouble, self.absent = dict(observations), trouble, absent


def observe(engine: Engine, scenario: str) -> Answer:
    """Run one scenario in a child process."""
    limits = Limits(timeout=TIMEOUT, memory=4 << 30)
    outcome = run_child(partial(_observe, engine, scenario), limits=limits)
    observations = {record[1].case: record[1] for record in outcome.records if record[0] == "observed"}
    trouble = next((record[1] for record in outcome.records if record[0] == "trouble"), "")
    absent = next((record[1] for record in outcome.records if record[0] == "absent"), "")
    if absent:
        return Answer({}, absent=absent)
    if not trouble and outcome.ended != OK:
        trouble = f"{outcome.ended}: {outcome.output.strip()[-300:]}".rstrip(": ")
    if not trouble and not observations:
        trouble = "the scenario observed nothing"
    return Answer(observations, trouble)


def _observe(engine: Engine, scenario: str, channel: Channel) -> None:
    import torch

    # One thread: forked processes and thread pools do not go together, and one thread is the same bits each time.
    torch.set_num_threads(1)
    # What is set around the kit is no part of a question; one scenario sets variables itself.
    for name in [name for name in os.environ if name.startswith("TORCHLENS_WATCH_")]:
        del os.environ[name]
    try:
        from .scenarios import SCENARIOS

        with warnings.catch_warnings():
            # What an engine warns of is no matter of the laws.
            warnings.simplefilter("ignore")
            for observed in SCENARIOS[scenario](engine):
                channel.send("observed", observed)
    except NotApplicable as reason:
        channel.send("absent", str(reason)[:300])
    except PackageMissing as reason:
        channel.send("trouble", str(reason))
    except Exception as error:
        channel.send("trouble", f"{type(error).__name__}: {error}"[:300])


def missing_ability(law: Law, engine: Engine) -> str:
    """Return the first ability that a law needs and the engine does not declare, or nothing."""
    lacks = lacks_of(engine)
    return next((word for word in law.needs if word in lacks), "")


def package_missing(results: Iterable[CheckResult]) -> str:
    """Return why a law could not run for want of a package, or nothing when none of them lacks one."""
    return next((r.reason for r in results if r.outcome == COULD_NOT_RUN and PACKAGE_MISSING in r.reason), "")


def judged(law: Law, engine: Engine, answers: Mapping[str, Answer]) -> CheckResult:
    """Return what one law says, given what the scenarios gave."""
    word = missing_ability(law, engine)
    if word:
        return CheckResult(law.id, law.clauses, NOT_DECLARED, reason=f"{word}: {lacks_of(engine)[word]}")
    mine: dict[str, Any] = {name: answers[name] for name in law.scenarios if name in answers}
    absent = [answer.absent for answer in mine.values() if answer.absent]
    if absent:
        return CheckResult(law.id, law.clauses, NOT_APPLICABLE, reason="; ".join(dict.fromkeys(absent)))
    trouble = [f"{name}: {answer.trouble}" for name, answer in mine.items() if answer.trouble]
    if trouble or not mine:
        return CheckResult(law.id, law.clauses, COULD_NOT_RUN, reason="; ".join(trouble) or "nothing was observed")
    findings: list[Finding] = judge_law(law, {k: v for answer in mine.values() for k, v in answer.observations.items()})
    return CheckResult(law.id, law.clauses, FAILED if findings else PASSED, tuple(findings))


def chosen_laws(identities: Iterable[str] | None) -> tuple[Law, ...]:
    """Return the laws of these ids, or all. Raises ``kit_check_unknown``."""
    return LAWS if identities is None else tuple(get_law(identity) for identity in identities)
