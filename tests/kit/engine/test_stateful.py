"""The state machine of the step law explores engines."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from torchlens_conformance.kit.engine.adapter import Engine
from torchlens_conformance.kit.engine.adapters import find_engine
from torchlens_conformance.kit.engine.defects import DEFECTS
from torchlens_conformance.kit.engine.plain_engine import PlainEngine
from torchlens_conformance.kit.engine.scenarios.machine import explore
from torchlens_conformance.kit.engine.scenarios.scripts import run_script
from torchlens_conformance.kit.engine.script_judge import judge_script
from torchlens_conformance.kit.engine.stateful import step_machine
from torchlens_conformance.kit.engine.step_model import Op

_FEW = settings(
    max_examples=15, stateful_step_count=12, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
# Stops at the first failure; enough that none of them is a matter of chance.
_MANY = settings(_FEW, max_examples=500, phases=(Phase.generate,))
_OURS = find_engine("ours")


@pytest.mark.parametrize("engine", [PlainEngine(), _OURS], ids=["plain", "ours"])
def test_engine_and_model_agree(engine: Engine) -> None:
    """Whatever is opened, trained, left, raised and closed in any order, engine and model agree (STEP-2, STEP-3)."""
    run_state_machine_as_test(step_machine(engine), settings=_FEW)


def test_a_wrong_engine_is_found() -> None:
    """An engine with a counter of its own does not agree with the model (STEP-1)."""
    wrong = next(defect for defect in DEFECTS if defect.id == "own-counter").engine
    with pytest.raises(AssertionError, match="step"):
        run_state_machine_as_test(step_machine(wrong), settings=_MANY)


def test_the_walk_is_the_same_each_time() -> None:
    """What decides a report tries the same scripts in every run and place (STEP-1)."""
    first, second = (explore(PlainEngine(), scripts=5) for _ in range(2))
    assert first.facts["ops"] == second.facts["ops"]
    assert first.facts["tried"] == 5


@pytest.mark.parametrize("engine", [PlainEngine(), _OURS], ids=["plain", "ours"])
def test_a_second_boundary_in_one_scope_gives_no_second_point(engine: Engine) -> None:
    """An optimizer that steps twice in one scope has one point a series, of its first step (STEP-2)."""
    ops = (Op("open", 3), Op("train"), Op("train"), Op("leave"), Op("close"))
    assert judge_script(run_script(engine, "twice", ops)) == []
