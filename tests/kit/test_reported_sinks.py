"""Report 34: sinks with one fault each, as people met them, are found by the check that is named for the fault."""

from __future__ import annotations

from math import inf, nan

import pytest

from torchlens_conformance.kit.checking import run_checks
from torchlens_conformance.kit.checks.telling import narrowed_to
from torchlens_conformance.kit.defects import get_defect
from torchlens_conformance.kit.model import FAILED, PASSED
from torchlens_conformance.kit.perfect import PERFECT
from torchlens_conformance.protocol.compare import as_float32

_REPORTED = {
    "own-step-counter": ("values.steps", "came back"),
    "float32-cast": ("values.scalar", "which is its float32"),
    "six-digits": ("values.scalar", "which is its first 6 digits"),
    "last-writer-wins": ("delivery.nothing-lost", "a later point of its tag and step came back"),
    "ordered-by-value": ("order.kept", "came back before it"),
    "nonfinite-filtered": ("delivery.nothing-lost", "a value that is not finite"),
    "drops-first": ("delivery.nothing-lost", "the first of all points"),
    "flush-does-nothing": ("survives.kill-between", "flush"),
    "tag-sanitized": ("tags.unchanged", "tag"),
    "mutates-input": ("points.unchanged", "point"),
    "caches-by-address": ("points.not-aliased", "after its sources were overwritten"),
}
"""By planted defect: the check that has to find it, and a word of the sentence that says what is wrong."""


def _found(fault: str) -> list[str]:
    """Return what the check that is named for a fault says of it."""
    check, _ = _REPORTED[fault]
    (result,) = run_checks(get_defect(fault).subject, checks=[check]).results
    assert result.outcome == FAILED
    return [finding.message for finding in result.findings]


@pytest.mark.parametrize("fault", _REPORTED)
def test_a_reported_fault_is_named(fault: str) -> None:
    """Report 34: what backends of trackers do to a point is found and said in a sentence (PROT-1, POINT-3)."""
    check, word = _REPORTED[fault]
    assert get_defect(fault).killed_by[0] == check
    messages = _found(fault)
    assert word in messages[0]
    # A sentence of another fault that the same check finds does not stand there.
    others = {said for other, (asked, said) in _REPORTED.items() if asked == check and other != fault}
    assert not [message for message in messages for said in others if said in message]


def test_no_two_reported_faults_are_named_alike() -> None:
    """Report 34: each fault has a check and a sentence that no other has (PROT-1)."""
    assert len(set(_REPORTED.values())) == len(_REPORTED)


@pytest.mark.parametrize(
    ("sent", "seen", "told"),
    [
        (0.1, as_float32(0.1), ", which is its float32"),
        (2 / 3, 0.666667, ", which is its first 6 digits"),
        (2 / 3, 0.667, ", which is its first 3 digits"),
        (1.0 + 2.0**-52, 1.0, ""),
        (2**53 + 1, 2.0**53, ", which is its float32"),
        (16777217, 16777216, ", which is its float32"),
        (0.1, 0.2, ""),
        (5e-324, 0.0, ""),
        (1e300, inf, ""),
        (nan, 0.5, ""),
        (10**400, 1.0, ""),
        (1.0, 10**400, ""),
        ("0.1", "0.10000000149", ""),
        (True, 1.0, ""),
    ],
)
def test_a_narrowed_number_says_to_what(sent: object, seen: object, told: str) -> None:
    """Report 34: rounding to float32 and to digits is told apart; what fits neither or both is not (POINT-3)."""
    assert narrowed_to(sent, seen) == told


def test_the_clean_sink_passes_the_same_checks() -> None:
    """Report 34: a sink without these faults passes every check that finds them (PROT-1, POINT-3)."""
    checks = sorted({check for check, _ in _REPORTED.values()})
    assert {result.outcome for result in run_checks(PERFECT[0].subject, checks=checks).results} == {PASSED}


def test_a_sink_that_blocks_gets_an_answer() -> None:
    """Report 34: a sink that blocks is stopped, and the check says so (PROT-1)."""
    (result,) = run_checks(get_defect("flush-hangs").subject, checks=["teardown.flush-before-close"], timeout=1).results
    assert result.outcome == FAILED
    assert "timed out" in result.findings[0].message
