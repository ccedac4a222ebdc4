"""Laws about callbacks: a framework's own log is the axis, its run is not disturbed. Clauses: CB-1, CB-2, STEP-9."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from ...model import Finding
from ..looking import data_rows, finding, judge_statistics, silent, unexpected
from ..observation import RAISED, REFUSED, Law, Observed
from .conduct import differing

Observations = Mapping[str, Observed]


def _steps(observed: Observed, ending: str = "") -> list[int]:
    """Return the steps of one series of gradient norms, in the order in which its rows came."""
    norms = [row for row in data_rows(observed.first_rows) if row.tag.startswith("gradients/norm/")]
    chosen = [row for row in norms if row.tag.endswith(ending)]
    return [row.step for row in chosen if row.tag == chosen[0].tag]


def _went_wrong(observed: Observed) -> list[Finding]:
    """Return what kept a run from its end, or that no row came."""
    return unexpected(observed) or silent(observed)


def _on_axis(observed: Observed) -> list[Finding]:
    logged, seen = observed.facts.get("logged", []), _steps(observed)
    findings = _went_wrong(observed)
    if seen != logged:
        lost = [step for step in logged if step not in seen]
        text = "The rows do not lie on the axis of the framework's own log."
        findings.append(finding(text, logged, seen, "dropped silently" if lost else "coerced", observed.case))
    return findings


def _axis(observations: Observations) -> list[Finding]:
    return [found for observed in observations.values() for found in _on_axis(observed)]


def _gradients(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        findings += _went_wrong(observed)
        # The n-th step of the optimizer is judged by the n-th step of the series: the axis is a law of its own.
        for step, values in zip(_steps(observed), observed.facts.get("gradients", [])):
            findings += judge_statistics(observed.first_rows, "gradients", step, values, observed.case)
    return findings


def _guest(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        findings += _went_wrong(observed)
        findings += differing(observed, "A run with the callback does not leave what the run without it leaves.")
    return findings


def _exception(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        ended = next((event for event in observed.events if event.what == "train"), None)
        if ended is None or ended.outcome != RAISED or not observed.facts.get("the same error"):
            shown = "nothing" if ended is None else ended.exception or "it returned"
            text = "The exception of the loop does not come out as it is."
            findings.append(finding(text, "PlannedError: planted", shown, "coerced", observed.case))
        logged, seen = observed.facts.get("logged", []), _steps(observed)
        if seen != logged:
            text = "What was seen before the exception is not kept."
            findings.append(finding(text, logged, seen, "dropped silently", observed.case))
    return findings


def _closed(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        if not observed.first_rows:
            # Nothing was ever attached, so there is nothing that could be closed.
            findings += silent(observed)
            continue
        if not observed.facts["closed"]:
            text = "After an exception of the loop the session is not closed."
            findings.append(finding(text, "the sink is closed", "it is not", "dropped silently", observed.case))
        if observed.facts["leaks"]:
            text = "After an exception of the loop hooks are left."
            findings.append(finding(text, "none", observed.facts["leaks"], "coerced", observed.case))
    return findings


def _cadence(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        if not observed.case.endswith("/derived"):
            continue
        findings += _went_wrong(observed)
        logged, seen = observed.facts.get("logged", []), _steps(observed)
        every, most = observed.facts["every"], len(logged) + 2
        wide = [pair for pair in pairwise(seen) if pair[1] - pair[0] > every]
        if wide or not len(logged) <= len(seen) <= most:
            text = "The cadence does not follow from the framework's logging."
            told = f"about every {every} steps, as {logged}"
            findings.append(finding(text, told, seen, "dropped silently" if wide else "coerced", observed.case))
    return findings


def _settings(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        name = observed.case.rpartition("/")[2]
        if name == "malformed":
            findings += _malformed(observed)
        elif name in ("variable", "argument"):
            every, seen = observed.facts["every"], _steps(observed)
            findings += _went_wrong(observed)
            # The first step is always sampled, and the last one may be forced.
            wrong = [step for step in seen[1:-1] if step % every]
            missing = [step for step in range(every, observed.facts["steps"], every) if step not in seen]
            if wrong or missing:
                text = f"The cadence is not the one of the {name}."
                loss = "dropped silently" if missing else "coerced"
                findings.append(finding(text, f"every {every} steps", seen, loss, observed.case))
    return findings


def _malformed(observed: Observed) -> list[Finding]:
    refused = [event for event in observed.events if event.outcome == REFUSED]
    if refused and refused[0].code == "watch_env_config_invalid" and "TORCHLENS_WATCH_EVERY" in refused[0].exception:
        return []
    shown = refused[0].exception if refused else "no refusal"
    text = "A malformed variable is not refused by its name."
    return [finding(text, "watch_env_config_invalid, naming it", shown, "coerced", observed.case)]


def _optimizers(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        findings += _went_wrong(observed)
        logged = observed.facts.get("logged", [])
        # An epoch has an odd number of batches, and the second optimizer steps in the first, the third, the fifth.
        half = len(logged) // 2
        seldom = [*logged[:half:2], *logged[half::2]]
        for part, wanted in (("often.weight", logged), ("seldom.weight", seldom)):
            seen = _steps(observed, part)
            if seen != wanted:
                text = "The rows of one of two optimizers do not lie on the axis of the framework's own log."
                where = f"{observed.case}: {part}"
                findings.append(finding(text, wanted, seen, "coerced", where))
    return findings


Judge = Callable[[Observations], Sequence[Finding]]
_FRAMEWORKS = {"hf": "a transformers.Trainer", "lightning": "a lightning Trainer"}
_EACH: Sequence[tuple[str, tuple[str, ...], str, str, Judge, str]] = (
    (
        "axis",
        ("CB-1", "STEP-9"),
        "Do the rows of {} lie on the axis of its own log: one an optimizer step, a short last window included?",
        "run",
        _axis,
        "Take the number under which the framework logs the step; count no batches.",
    ),
    (
        "gradients",
        ("CB-1", "STEP-9"),
        "Are the gradients of {} those that its optimizer steps with: of the whole window, and clipped?",
        "run",
        _gradients,
        "Look at the boundary of the optimizer, not at the end of a backward or of a step.",
    ),
    (
        "guest",
        ("CB-1", "CLOSE-3"),
        "Does a run of {} with the callback leave the same bits as without it, and no hook?",
        "run",
        _guest,
        "Draw no random number, and change no mode.",
    ),
    (
        "resume",
        ("CB-1", "STEP-2"),
        "Does a resumed run of {} go on along the axis, in a new segment?",
        "resume",
        _axis,
        "Take the step from the framework, and declare a new segment when training does not begin at its beginning.",
    ),
    (
        "exception",
        ("CB-1", "TAG-4"),
        "When the loop of {} raises, does its exception come out as it is, and is what was seen kept?",
        "raises",
        _exception,
        "Emit each step when it ends, and raise nothing while an exception unwinds.",
    ),
    (
        "closed",
        ("CB-1", "CLOSE-3"),
        "When the loop of {} raises, is the session closed, and is no hook left?",
        "raises",
        _closed,
        "Close where the framework tells of the exception; where it tells nobody, give users something to put around.",
    ),
    (
        "cadence",
        ("CB-1",),
        "Does the cadence follow the logging of {} when nothing else is said?",
        "settings",
        _cadence,
        "Ask the framework for its cadence of logging when training begins.",
    ),
    (
        "settings",
        ("CB-2",),
        "Does an argument of the callback of {} win over a variable, that over the framework, and is nonsense refused?",
        "settings",
        _settings,
        "Read TORCHLENS_WATCH_EVERY and the others where an argument is left out, and refuse what is malformed.",
    ),
)


def _law(framework: str, parts: tuple[str, tuple[str, ...], str, str, Judge, str]) -> Law:
    name, clauses, question, scenario, judge, remedy = parts
    # The Trainer tells no callback of an exception, so closing there takes the user's help.
    level = "should" if (framework, name) == ("hf", "closed") else "must"
    return Law(
        f"{framework}.{name}",
        clauses,
        question.format(_FRAMEWORKS[framework]),
        (f"{framework}-{scenario}",),
        judge,
        (f"{framework}-callback",),
        level,
        remedy,
    )


LAWS: tuple[Law, ...] = (
    *(_law(framework, parts) for framework in _FRAMEWORKS for parts in _EACH),
    Law(
        "lightning.optimizers",
        ("CB-1", "STEP-11"),
        "Do two optimizers under manual optimization leave the axis that of the log, each with rows of its own?",
        ("lightning-optimizers",),
        _optimizers,
        ("lightning-callback", "several-optimizers"),
        remedy="global_step counts steps of optimizers; take the number that loggers get.",
    ),
)
"""The laws about callbacks."""
