"""The plain model of the step law, and the judge that compares scripts with it, on hand-made observations."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from torchlens_conformance.kit.engine.observation import ACKNOWLEDGED, REFUSED, CloseFacts, Event, Observed, Row
from torchlens_conformance.kit.engine.scenarios.scripts import SCRIPTS, parse_script
from torchlens_conformance.kit.engine.script_judge import judge_script
from torchlens_conformance.kit.engine.step_model import ANY_REFUSAL, OK, Op, StepModel


def after(*ops: Op) -> StepModel:
    """Return the model after operations that all did what they may do first."""
    model = StepModel()
    for op in ops:
        allowed = model.allowed(op)
        model.apply(op, OK if OK in allowed else sorted(map(str, allowed))[0])
    return model


def test_steps_increase_within_a_segment() -> None:
    """A step that is not larger is refused, unless a new segment is declared (STEP-2)."""
    model = after(Op("open", 4), Op("train"), Op("leave"))
    assert model.allowed(Op("open", 4)) == {"watch_step_regression"}
    assert model.allowed(Op("open", 4, new_segment=True)) == {OK}
    assert model.allowed(Op("open", 5)) == {OK}


@pytest.mark.parametrize("step", [-1, 1.0, True, 2**63, "3", None])
def test_what_is_no_step_is_refused(step: object) -> None:
    """Negative, too large, and whatever is no integer is no step (STEP-3)."""
    assert StepModel().allowed(Op("open", step)) == {"watch_step_invalid"}


def test_scopes_never_nest() -> None:
    """An open scope refuses another one (STEP-3)."""
    assert after(Op("open", 4)).allowed(Op("open", 5)) == {"watch_step_conflict"}


def test_a_boundary_needs_a_source_and_a_scope_a_boundary() -> None:
    """No source and no boundary are both refused; a step that the scaler left out is neither (STEP-1, STEP-7)."""
    assert StepModel().allowed(Op("train")) == {"watch_step_source_missing"}
    assert after(Op("open", 4)).allowed(Op("leave")) == {"watch_phase_missing"}
    assert after(Op("open", 4), Op("overflow")).allowed(Op("leave")) == {OK}


def test_a_closed_session_takes_no_step() -> None:
    """After close a step is refused, and training goes on unwatched (CLOSE-3)."""
    model = after(Op("open", 4), Op("train"), Op("leave"), Op("close"))
    assert model.allowed(Op("open", 5)) == {ANY_REFUSAL}
    assert model.allowed(Op("train")) == {OK}


def test_scripts_are_read() -> None:
    """Every fixed script parses, and reads back as it is meant (STEP-2)."""
    assert parse_script("open 4; train; open 2 new; open True; open 5.5") == (
        Op("open", 4),
        Op("train"),
        Op("open", 2, new_segment=True),
        Op("open", True),
        Op("open", 5.5),
    )
    assert all(parse_script(text) for topic in SCRIPTS.values() for text in topic.values())


def good_run() -> Observed:
    """Return a right run of one step, by hand."""
    ops = parse_script("open 4; train; leave; close")
    events = (Event("attach"), *(Event(op.what, ACKNOWLEDGED, step=op.step) for op in ops))
    rows = (
        Row("scalar", "torchlens/run/attached", 4, 1, during=1),
        Row("scalar", "gradients/mean/weight", 4, 0.5, during=3),
        Row("scalar", "torchlens/run/last_step", 4, 4, during=3),
    )
    return Observed("hand/one", {"first": rows}, events, CloseFacts(1, 4, 4, False), {"ops": ops})


def changed(rows: tuple[Row, ...], **facts: object) -> Observed:
    """Return the good run with other rows."""
    good = good_run()
    return Observed(good.case, {"first": rows}, good.events, good.report, {**good.facts, **facts})


def test_a_right_run_is_right() -> None:
    """A run by hand that keeps the law has no finding (STEP-1)."""
    assert judge_script(good_run()) == []


def test_each_wrong_row_is_told() -> None:
    """A wrong step, a missing row, a row twice and a late heartbeat are each told (STEP-1, STEP-4, STEP-8)."""
    beat, mean, last = good_run().first_rows
    wrong = {
        "caller's step": (beat, Row("scalar", mean.tag, 5, 0.5, during=3), last),
        "no data row": (beat, last),
        "two points": (beat, mean, mean, last),
        "last_step": (beat, mean),
        "not one row": (mean, last),
        "first seen step": (mean, beat, last),
    }
    for told, rows in wrong.items():
        assert any(told in finding.message for finding in judge_script(changed(rows))), told


def test_a_wrong_operation_is_told() -> None:
    """The first operation that did what it must not is told with the script (STEP-2)."""
    good = good_run()
    events = (*good.events[:1], Event("open", REFUSED, "watch_step_conflict", "no", 4))
    found = judge_script(Observed("hand/refused", {}, events, None, {"ops": good.facts["ops"][:1]}))
    assert [(finding.loss, finding.where) for finding in found] == [("refused", "hand/refused: open(4)")]
