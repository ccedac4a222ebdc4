"""Report 34: sinks with one fault each, as people met them, are found by the check that is named for the fault."""

from __future__ import annotations

import pytest

from torchlens_conformance.kit.checking import run_checks
from torchlens_conformance.kit.defects import get_defect
from torchlens_conformance.kit.model import FAILED, PASSED
from torchlens_conformance.kit.perfect import PERFECT

_REPORTED = {
    "own-step-counter": ("values.steps", "came back"),
    "float32-cast": ("values.scalar", "changed: sent"),
    "six-digits": ("values.scalar", "changed: sent"),
    "last-writer-wins": ("delivery.nothing-lost", "did not come back"),
    "ordered-by-value": ("order.kept", "came back before it"),
    "nonfinite-filtered": ("delivery.nothing-lost", "did not come back"),
    "drops-first": ("delivery.nothing-lost", "did not come back"),
    "flush-does-nothing": ("survives.kill-between", "flush"),
    "tag-sanitized": ("tags.unchanged", "tag"),
    "mutates-input": ("points.unchanged", "point"),
    "caches-by-address": ("points.not-aliased", "after its sources were overwritten"),
}
"""By planted defect: the check that has to find it, and a word of the sentence that says what is wrong."""


@pytest.mark.parametrize("fault", _REPORTED)
def test_a_reported_fault_is_named(fault: str) -> None:
    """Report 34: what backends of trackers do to a point is found and said in a sentence (PROT-1, POINT-3)."""
    check, word = _REPORTED[fault]
    assert get_defect(fault).killed_by[0] == check
    (result,) = run_checks(get_defect(fault).subject, checks=[check]).results
    assert result.outcome == FAILED
    assert word in result.findings[0].message


def test_the_clean_sink_passes_the_same_checks() -> None:
    """Report 34: a sink without these faults passes every check that finds them (PROT-1, POINT-3)."""
    checks = sorted({check for check, _ in _REPORTED.values()})
    assert {result.outcome for result in run_checks(PERFECT[0].subject, checks=checks).results} == {PASSED}


def test_a_sink_that_blocks_gets_an_answer() -> None:
    """Report 34: a sink that blocks is stopped, and the check says so (PROT-1)."""
    (result,) = run_checks(get_defect("flush-hangs").subject, checks=["teardown.flush-before-close"], timeout=1).results
    assert result.outcome == FAILED
    assert "timed out" in result.findings[0].message
