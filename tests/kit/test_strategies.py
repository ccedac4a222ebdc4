"""The public strategies draw legal points of every kind, and the stateful test finds a wrong sink."""

from __future__ import annotations

import unittest
from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.kit import broken_subjects
from torchlens_conformance.kit.stateful import sink_machine
from torchlens_conformance.kit.strategies import points, tags
from torchlens_conformance.kit.subject import Subject
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    Point,
    point_to_row,
    require_safe_tag,
    row_to_point,
)

_FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("word", CAPABILITY_METHODS)
def test_every_capability(word: str) -> None:
    """Each word has points of its own kind, which survive the rows of JSONL (POINT-1, JSONL-1)."""

    @_FEW
    @given(points([word]))
    def law(point: Point) -> None:
        assert point.capability == word
        row = point_to_row(point)
        assert repr(point_to_row(row_to_point(row))) == repr(row)

    law()


@_FEW
@given(tags())
def test_safe_tags(tag: str) -> None:
    """Safe tags are safe (TAG-3)."""
    assert require_safe_tag(tag) == tag


@_FEW
@given(st.data())
def test_only_what_was_asked(data: st.DataObject) -> None:
    """No other capability is drawn (PROT-2)."""
    assert data.draw(points(["scalar", "graph"])).capability in ("scalar", "graph")


def test_no_words_is_no_test() -> None:
    """A strategy of no capability is refused: it would test nothing (PROT-2)."""
    with pytest.raises(ValueError, match="nothing to draw"):
        points([])


def run_machine(subject: Subject) -> unittest.TestResult:
    """Run the stateful test of a subject."""
    case = sink_machine(subject).TestCase
    case.settings = settings(
        max_examples=10,
        stateful_step_count=8,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    result = unittest.TestResult()
    case("runTest").run(result)
    return result


def test_stateful_passes_a_right_sink() -> None:
    """The stateful test holds for the JSONL sink (JSONL-1, PROT-6)."""
    result = run_machine(replace(broken_subjects.JSONL, capabilities=("scalar", "text_manifest")))
    assert result.testsRun == 1
    assert result.failures == result.errors == []


def test_stateful_finds_a_wrong_sink() -> None:
    """It finds a sink that keeps nothing (PROT-1)."""
    assert not run_machine(broken_subjects.NULL).wasSuccessful()
