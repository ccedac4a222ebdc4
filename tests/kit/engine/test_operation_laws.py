"""Laws about single operations of a forward, each with engines that keep it and engines that break it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from torchlens_conformance.kit.engine.adapters import find_engine
from torchlens_conformance.kit.engine.asking import ask
from torchlens_conformance.kit.engine.defects import get_defect
from torchlens_conformance.kit.engine.defects.operation_defects import OPERATION_DEFECTS
from torchlens_conformance.kit.engine.laws import LAWS, get_law
from torchlens_conformance.kit.engine.plain_engine import PlainEngine
from torchlens_conformance.kit.model import FAILED, NOT_DECLARED, PASSED

OPERATION_LAWS = tuple(law for law in LAWS if law.id.startswith("op."))


@pytest.mark.parametrize("name", ["plain", "ours"])
def test_right_engines_keep_the_laws(name: str) -> None:
    """The plain engine and ours pass every law about operations (TIER-2, TIER-3)."""
    told = ask(find_engine(name), OPERATION_LAWS)
    assert [(result.check, result.outcome) for result in told] == [(law.id, PASSED) for law in OPERATION_LAWS]


def test_an_engine_without_op_grain_is_not_asked() -> None:
    """It declares that it lacks operations, and its laws are not declared (TIER-2)."""
    told = ask(PlainEngine(lacks={"operations": "it has none"}), OPERATION_LAWS)
    assert {result.outcome for result in told} == {NOT_DECLARED}


@pytest.mark.parametrize(
    "name",
    ["op-later-values", "op-facets-turned", "op-last-forward", "op-late-consent", "op-random-moved", "op-wrap-stays"],
)
def test_wrong_engines_fail_by_their_laws(name: str) -> None:
    """A planted defect fails by the laws named for it (TIER-2, TIER-3, CLOSE-3)."""
    planted = get_defect(name)
    told = ask(planted.engine, [get_law(law) for law in planted.killed_by])
    assert [result.outcome for result in told] == [FAILED] * len(planted.killed_by)


def test_every_law_has_a_defect() -> None:
    """No law about operations is without a defect that was planted for it (TIER-3)."""
    assert {law for defect in OPERATION_DEFECTS for law in defect.killed_by} == {law.id for law in OPERATION_LAWS}
