"""Laws about callbacks: real frameworks, right engines, planted defects, and what a missing framework gives."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("lightning")

from tests.kit.engine.examples import HELD
from torchlens_conformance.kit.engine import examine as examining
from torchlens_conformance.kit.engine.adapter import CALLBACKS, lacks_of
from torchlens_conformance.kit.engine.adapters import find_engine, require_engine
from torchlens_conformance.kit.engine.asking import FRAMEWORKS, ask, observe, package_missing
from torchlens_conformance.kit.engine.defects import DEFECTS
from torchlens_conformance.kit.engine.defects.callback_defects import CALLBACK_DEFECTS
from torchlens_conformance.kit.engine.examine import examine
from torchlens_conformance.kit.engine.judging import judge
from torchlens_conformance.kit.engine.laws import LAWS, get_law
from torchlens_conformance.kit.engine.plain_engine import PlainEngine
from torchlens_conformance.kit.engine.scenarios import frameworks
from torchlens_conformance.kit.model import COULD_NOT_RUN, FAILED, INCOMPLETE, NOT_DECLARED, PASSED

CALLBACK_LAWS = [law for law in LAWS if set(law.needs) & set(CALLBACKS)]


@pytest.mark.parametrize("name", ["plain", "ours"])
def test_right_callbacks_keep_the_laws(name: str) -> None:
    """The plain callbacks and ours pass each law under both real frameworks (CB-1, CB-2, STEP-9, STEP-11, TAG-4)."""
    told = {result.check: result for result in ask(find_engine(name), CALLBACK_LAWS)}
    assert {law: result.outcome for law, result in told.items()} == dict.fromkeys(told, PASSED), told
    assert len(told) == 17


@pytest.mark.parametrize("planted", CALLBACK_DEFECTS, ids=lambda planted: planted.id)
def test_wrong_callbacks_fail_by_their_laws(planted: Any) -> None:
    """Each planted defect of callbacks fails by the laws named for it, under both frameworks (CB-1, CB-2)."""
    told = ask(planted.engine, [get_law(law) for law in planted.killed_by])
    assert [result.outcome for result in told] == [FAILED] * len(planted.killed_by), told


@pytest.mark.parametrize(
    ("framework", "logged", "steps"), [("hf", [1, 2, 3, 4, 5, 6], 6), ("lightning", [0, 1, 2, 3, 4, 5], 6)]
)
def test_the_framework_itself_says_what_it_logged(framework: str, logged: list[int], steps: int) -> None:
    """The axis that laws ask for is what the framework logged: five batches in windows of two, twice (CB-1, STEP-9)."""
    (seen,) = observe(PlainEngine(), f"{framework}-run").observations.values()
    assert seen.facts["logged"] == logged and len(seen.facts["gradients"]) == steps
    # Each step was clipped, so that gradients before clipping would be others.
    for gradients in seen.facts["gradients"]:
        total = sum(value**2 for values in gradients.values() for value in values) ** 0.5
        assert total == pytest.approx(frameworks.CLIP, rel=1e-3)


def test_an_adapter_without_callbacks_lacks_them() -> None:
    """Laws about callbacks are not declared for an adapter that has no method for them, with that reason (CB-1)."""

    class Bare:
        name, distribution, spellings = "bare", None, PlainEngine.spellings
        lacks: dict[str, str] = {}  # noqa: RUF012

        def attach(self, *given: Any) -> Any:
            raise AssertionError("nobody attaches")

    bare = require_engine("x:BARE", Bare())
    assert set(lacks_of(bare)) == set(CALLBACKS)
    assert {(r.outcome, r.reason.partition(": ")[2]) for r in ask(bare, CALLBACK_LAWS)} == {
        (NOT_DECLARED, "the adapter has no callback()")
    }
    told = examine(bare, laws=["hf.axis"], controls=HELD)
    assert told.subject["undeclared"].keys() == set(CALLBACKS)


@pytest.fixture
def without_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Lightning missing."""
    found = frameworks.find_spec
    monkeypatch.setattr(frameworks, "find_spec", lambda name: None if name == "lightning" else found(name))


@pytest.mark.usefixtures("without_lightning")
def test_a_missing_framework_gives_no_answer() -> None:
    """Where a framework is missing its laws could not run, with the way out, and the verdict is incomplete (CB-1)."""
    told = {
        result.check: result for result in ask(find_engine("ours"), [get_law("lightning.axis"), get_law("hf.axis")])
    }
    assert told["hf.axis"].outcome == PASSED and told["lightning.axis"].outcome == COULD_NOT_RUN
    assert "package missing: lightning" in told["lightning.axis"].reason
    assert "torchlens-conformance[lightning]" in told["lightning.axis"].reason
    assert package_missing(told.values()) == told["lightning.axis"].reason
    assert judge([], list(told.values()), HELD, partial_run=False)[0] == INCOMPLETE


@pytest.mark.usefixtures("without_lightning")
@pytest.mark.parametrize("name", ["callback-draws", "callback-counts-optimizers"])
def test_a_missing_framework_voids_no_run(name: str) -> None:
    """A defect is held to the laws that could run; where none could, the control says so and holds (CB-1)."""
    control = examining._control(1 + [defect.id for defect in DEFECTS].index(name))
    assert control.ok
    if name == "callback-draws":
        assert control.expected == "fail by hf.guest"
    else:
        assert "could not run" in control.seen and "package missing: lightning" in control.seen


def test_frameworks_are_imported_only_for_their_laws() -> None:
    """Each ability that needs a framework names what is imported once, before any scenario forks (CB-1)."""
    assert set(FRAMEWORKS) == set(CALLBACKS)
    assert os.environ["COMET_DISABLE_AUTO_LOGGING"] == "1"
