"""Reports of engines from made-up results, from which the tests of reports start."""

from __future__ import annotations

from torchlens_conformance.kit.engine.adapter import Engine
from torchlens_conformance.kit.engine.adapters import find_engine
from torchlens_conformance.kit.engine.examine import report_of
from torchlens_conformance.kit.engine.judging import judge
from torchlens_conformance.kit.engine.laws import LAWS
from torchlens_conformance.kit.model import FAILED, PASSED, CheckResult, ControlResult, Finding, Report

HELD = (ControlResult("perfect: plain", "pass", "passed", True),)
"""Controls that held."""

FINDING = Finding("Sent <b>1</b>, came back 2.", "1", "2", "coerced", "some/case")


def results(**outcomes: str) -> list[CheckResult]:
    """Return passed for every law, but for those given (``step_source="failed"``)."""
    changed = {key.replace("_", ".", 1).replace("_", "-"): outcome for key, outcome in outcomes.items()}
    assert changed.keys() <= {law.id for law in LAWS}
    made = []
    for law in LAWS:
        outcome = changed.get(law.id, PASSED)
        reason = "" if outcome in (PASSED, FAILED) else "a reason"
        made.append(CheckResult(law.id, law.clauses, outcome, (FINDING,) if outcome == FAILED else (), reason))
    return made


def report(engine: Engine | None = None, **outcomes: str) -> Report:
    """Return the report of a run of every law."""
    engine = find_engine("plain") if engine is None else engine
    made = results(**outcomes)
    verdict, why = judge(list(engine.lacks), made, HELD, partial_run=False)
    return report_of(engine, verdict, why, made, HELD, target="plain", milliseconds=7)
