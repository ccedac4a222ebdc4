"""Examines an engine: the controls first, then every law, then the verdict and the report."""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from typing import Any
from uuid import uuid4

from torchlens_conformance import __version__

from ..controls import judge_defect, judge_perfect
from ..keepers import Fault, side_by_side
from ..model import (
    CONFORMANT,
    COULD_NOT_RUN,
    FAILED,
    INCOMPLETE,
    NONCONFORMANT,
    NOT_DECLARED,
    VOID,
    WITH_DEVIATIONS,
    CheckResult,
    ControlResult,
    Report,
)
from ..report import Steadied, control_row, document_digest, result_row
from ..verdict import count_outcomes
from .adapter import ABILITIES, Engine
from .asking import ask, chosen_laws, import_once
from .defects import DEFECTS
from .laws import LAWS, get_law
from .plain_engine import PlainEngine

FORMAT, FORMAT_VERSION = "torchlens-conformance.engine-report", 1


def run_controls() -> tuple[ControlResult, ...]:
    """Show that the plain engine passes and that each planted defect fails by the laws named for it."""
    import_once()
    names = ["perfect: plain", *(f"defect: {defect.id}" for defect in DEFECTS)]
    given = side_by_side([partial(_control, index) for index in range(len(names))])
    return tuple(
        ControlResult(name, "an answer", value.text[:300], False) if isinstance(value, Fault) else value
        for name, value in zip(names, given)
    )


def _control(index: int) -> ControlResult:
    if index == 0:
        return judge_perfect("plain", ask(PlainEngine(), LAWS))
    defect = DEFECTS[index - 1]
    return judge_defect(defect.id, ask(defect.engine, [get_law(law) for law in defect.killed_by]))


def examine(
    engine: Engine,
    *,
    target: str | None = None,
    laws: Iterable[str] | None = None,
    controls: Sequence[ControlResult] | None = None,
) -> Report:
    """Examine an engine and return the report; never raises for the engine's faults.

    Args:
        engine: The engine, by its adapter.
        target: How the command line finds it again, or None.
        laws: Ids of laws to ask; all when left out. A partial run is never conformant.
        controls: What the controls did; they are run when left out.

    Raises ``kit_check_unknown``.
    """
    chosen = chosen_laws(laws)
    start = time.monotonic()
    shown = run_controls() if controls is None else tuple(controls)
    results = ask(engine, chosen) if all(control.ok for control in shown) else ()
    partial_run = len(chosen) < len(LAWS)
    verdict, why = judge(engine, results, shown, partial_run=partial_run)
    milliseconds = int((time.monotonic() - start) * 1000)
    return report_of(engine, verdict, why, results, shown, target=target, milliseconds=milliseconds)


def judge(
    engine: Engine, results: Sequence[CheckResult], controls: Sequence[ControlResult], *, partial_run: bool
) -> tuple[str, str]:
    """Return the verdict and the sentence that says why.

    In this order: void, nonconformant, incomplete, with deviations, conformant.
    """
    broken = [control.control for control in controls if not control.ok]
    if broken or not controls:
        return (
            VOID,
            f"The kit did not prove itself, so it says nothing about the engine: {_named(broken) or 'no control ran'}.",
        )
    levels = {law.id: law.level for law in LAWS}
    failed = [result.check for result in results if result.outcome == FAILED]
    must = [law for law in failed if levels[law] == "must"]
    asked = sum(result.outcome != NOT_DECLARED for result in results)
    if must:
        return NONCONFORMANT, f"{len(must)} of {asked} laws failed: {_named(must)}."
    stuck = [result.check for result in results if result.outcome == COULD_NOT_RUN]
    if stuck:
        return INCOMPLETE, f"{len(stuck)} laws gave no answer: {_named(stuck)}."
    if partial_run:
        return INCOMPLETE, f"Only {len(results)} of {len(LAWS)} laws were asked."
    if failed:
        return WITH_DEVIATIONS, f"{len(failed)} laws that an engine should keep failed: {_named(failed)}."
    if engine.lacks:
        return WITH_DEVIATIONS, f"It does not declare {_named(list(engine.lacks))}; all {asked} laws it was asked hold."
    return CONFORMANT, f"All {asked} laws hold."


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def version_of(distribution: str | None) -> str | None:
    """Return the version of a distribution, or None when it is not installed as one."""
    try:
        return None if distribution is None else metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def report_of(
    engine: Engine,
    verdict: str,
    why: str,
    results: Sequence[CheckResult],
    controls: Sequence[ControlResult],
    *,
    target: str | None,
    milliseconds: int,
) -> Report:
    """Return the report with its canonical document."""
    levels = {law.id: law.level for law in LAWS}
    steady = Steadied()
    environment = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": socket.gethostname(),
        "kit": __version__,
        "milliseconds": milliseconds,
        "nonce": uuid4().hex[:12],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in ("torch", "numpy")},
    }
    subject: Mapping[str, Any] = {
        "declared": [word for word in ABILITIES if word not in engine.lacks],
        "distribution": engine.distribution,
        "name": engine.name,
        "reference": target,
        "undeclared": dict(engine.lacks),
        "version": version_of(engine.distribution),
    }
    document: dict[str, Any] = {
        "checks": count_outcomes(levels, results),
        "controls": [control_row(control, steady) for control in controls],
        "environment": environment,
        "format": FORMAT,
        "profile": {"accepts": engine.spellings.accepted(), "laws": list(levels)},
        "results": [result_row(result, levels[result.check], steady) for result in results],
        "subject": subject,
        "verdict": verdict,
        "version": FORMAT_VERSION,
        "why": steady(why),
    }
    document["digest"] = document_digest(document)
    counts = document["checks"]
    return Report(
        verdict=verdict,
        why=document["why"],
        subject=subject,
        profile={"id": "engine"},
        executed=counts["executed"],
        expected=counts["expected"],
        results=tuple(results),
        controls=tuple(controls),
        environment=environment,
        document=document,
    )
