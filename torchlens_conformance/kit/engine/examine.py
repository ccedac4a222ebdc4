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
from ..model import NOT_APPLICABLE, CheckResult, ControlResult, Report
from ..report import build_document
from ..report_kinds import ENGINE
from .adapter import ABILITIES, Engine, lacks_of
from .asking import ask, chosen_laws, import_once, package_missing
from .defects import DEFECTS
from .judging import judge
from .laws import LAWS, get_law
from .plain_engine import PlainEngine
from .profile import engine_profile

MEASURED_WITH = ("torch", "numpy", "transformers", "accelerate", "lightning")
"""The distributions whose versions a report holds."""


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
        return judge_perfect("plain", _that_could_run(ask(PlainEngine(), LAWS)))
    defect = DEFECTS[index - 1]
    results = ask(defect.engine, [get_law(law) for law in defect.killed_by])
    away = [result.reason for result in results if result.outcome == NOT_APPLICABLE]
    if away:
        # Nobody is asked this law here, so there is nothing that the defect could show.
        return ControlResult(f"defect: {defect.id}", "be asked where that can be", f"not applicable: {away[0]}", True)
    could = _that_could_run(results)
    if not could:
        # No engine gets an answer to this law here, so there is no answer that the defect has to prove.
        told = f"could not run: {package_missing(results)}"
        return ControlResult(f"defect: {defect.id}", "be asked where that can be", told, True)
    return judge_defect(defect.id, could)


def _that_could_run(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the results without those of laws about a framework that is not installed."""
    return [result for result in results if not package_missing([result])]


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
    verdict, why = judge(list(lacks_of(engine)), results, shown, partial_run=partial_run)
    return report_of(
        engine,
        verdict,
        why,
        results,
        shown,
        target=target,
        chosen=[law.id for law in chosen] if partial_run else None,
        milliseconds=int((time.monotonic() - start) * 1000),
    )


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
    chosen: Sequence[str] | None = None,
) -> Report:
    """Return the report with its canonical document."""
    environment = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": socket.gethostname(),
        "kit": __version__,
        "milliseconds": milliseconds,
        "nonce": uuid4().hex[:12],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in MEASURED_WITH},
    }
    subject: Mapping[str, Any] = {
        "declared": [word for word in ABILITIES if word not in lacks_of(engine)],
        "distribution": engine.distribution,
        "name": engine.name,
        "reference": None if target is None else {"target": target},
        "undeclared": dict(lacks_of(engine)),
        "version": version_of(engine.distribution),
    }
    document = build_document(
        verdict=verdict,
        why=why,
        subject=subject,
        profile=engine_profile(),
        accepts=engine.spellings.accepted(),
        results=results,
        controls=controls,
        environment=environment,
        chosen=chosen,
        kind=ENGINE,
    )
    return Report(
        verdict=verdict,
        why=document["why"],
        subject=subject,
        profile=document["profile"],
        executed=document["checks"]["executed"],
        expected=document["checks"]["expected"],
        results=tuple(results),
        controls=tuple(controls),
        environment=environment,
        document=document,
    )
