"""Small, made-up observations from which the tests of verdicts and reports start."""

from __future__ import annotations

from dataclasses import replace

from torchlens_conformance.kit.conclude import Observed, SubjectFacts, conclude
from torchlens_conformance.kit.model import (
    FAILED,
    NOT_DECLARED,
    PASSED,
    CheckResult,
    ControlResult,
    Finding,
    Report,
)
from torchlens_conformance.kit.profiles import get_profile
from torchlens_conformance.kit.verdict import WIREDNESS, Evidence

PROFILE = get_profile("2026.1")
CONTROLS = (
    ControlResult("perfect: jsonl", "pass", "passed", True),
    ControlResult("defect: null", "fail by delivery.nothing-lost", "failed by them", True),
    ControlResult(WIREDNESS, "report every altered value", "reported them", True),
)
FINDING = Finding("Sent 0.1, came back <b>0.10000000149</b>.", "0.1", "0.10000000149", "coerced", "scalar 'a'")

FACTS = SubjectFacts(
    {
        "declared": ["scalar"],
        "distribution": "mysinks",
        "in_process_read": False,
        "name": "My <sink>",
        "read": "fresh process",
        "reference": {"reader": None, "target": "mysinks:SUBJECT"},
        "undeclared": {"image": "the store has no images"},
        "version": "1.2",
    }
)


def results(**outcomes: str) -> tuple[CheckResult, ...]:
    """Return a passing result for every check of the profile, but for those given (``values_scalar="failed"``)."""
    changed = {key.replace("_", ".", 1).replace("_", "-"): outcome for key, outcome in outcomes.items()}
    assert changed.keys() <= PROFILE.levels.keys()
    return tuple(
        CheckResult(
            check.id,
            check.clauses,
            changed.get(check.id, PASSED),
            (FINDING,) if changed.get(check.id) == FAILED else (),
            "not declared" if changed.get(check.id) == NOT_DECLARED else "",
        )
        for check in PROFILE.checks
    )


def evidence(**outcomes: str) -> Evidence:
    """Return the evidence of a run in which everything held but for the given outcomes."""
    return Evidence(levels=PROFILE.levels, results=results(**outcomes), controls=CONTROLS, declared=("scalar",))


def report(facts: SubjectFacts = FACTS, **outcomes: str) -> Report:
    """Return the report of such a run."""
    observed = Observed(results=results(**outcomes), controls=CONTROLS, words=("scalar",), nonce="n1", milliseconds=7)
    return conclude(facts, PROFILE, observed)


def with_facts(**told: object) -> SubjectFacts:
    """Return the facts of the subject with some of them changed."""
    return replace(FACTS, told={**FACTS.told, **told})
