"""Laws that need more than a step: outputs of modules, half precision, processes, compilers, the environment, sinks."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from torchlens_conformance.kit.engine.adapters import find_engine
from torchlens_conformance.kit.engine.asking import ask, observe
from torchlens_conformance.kit.engine.defects import get_defect
from torchlens_conformance.kit.engine.laws import get_law
from torchlens_conformance.kit.engine.plain_engine import PlainEngine
from torchlens_conformance.kit.engine.scenarios import guest
from torchlens_conformance.kit.model import FAILED, NOT_DECLARED, PASSED

ASKED = (
    "step.segments",
    "step.overflows",
    "amp.derived-half",
    "amp.several",
    "module.values",
    "module.root",
    "module.shared",
    "module.gradients",
    "module.forward-kept",
    "module.spellings",
    "module.explicit",
    "ledger.slow",
    "ledger.ending",
    "ledger.interrupts",
    "compiled.graphs",
    "parallel.ranks",
    "environment.disables",
    "environment.turns-nothing-on",
)
DEFECTS = (
    "last-call",
    "filled-buffer-stays",
    "one-stage",
    "quotient-in-half",
    "loses-patience",
    "every-rank",
    "reads-environment",
)


@pytest.mark.parametrize("name", ["plain", "ours"])
def test_right_engines_keep_the_laws(name: str) -> None:
    """The plain engine and ours pass each of them (TIER-1, TIER-4, STEP-6, AMP-3, AMP-6, PROT-5, PROT-6, ENV-1)."""
    told = {result.check: result for result in ask(find_engine(name), [get_law(law) for law in ASKED])}
    assert {law: told[law].outcome for law in ASKED} == dict.fromkeys(ASKED, PASSED), told


@pytest.mark.parametrize("name", DEFECTS)
def test_wrong_engines_fail_by_their_laws(name: str) -> None:
    """A planted defect fails by the laws named for it (TIER-1, AMP-6, AMP-3, PROT-5, CLOSE-1, ENV-1)."""
    planted = get_defect(name)
    told = ask(planted.engine, [get_law(law) for law in planted.killed_by])
    assert [result.outcome for result in told] == [FAILED] * len(planted.killed_by)


def test_variables_around_the_kit_are_no_part_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kit that runs where watching is turned off asks all the same (ENV-1)."""
    monkeypatch.setenv("TORCHLENS_WATCH_DISABLE", "1")
    (told,) = ask(PlainEngine(), [get_law("values.missing")])
    assert told.outcome == PASSED


def test_an_engine_without_modules_is_not_asked_about_them() -> None:
    """Each law about outputs of modules is not declared, with the reason of the adapter (TIER-1)."""
    engine = PlainEngine("no modules", lacks={"activations": "it sees no modules", "activation-grads": "nor those"})
    laws = [law for law in ASKED if law.startswith("module.")] + ["guest.modules"]
    told = ask(engine, [get_law(law) for law in laws])
    assert {result.outcome for result in told} == {NOT_DECLARED}
    assert {result.reason.partition(": ")[2] for result in told} == {"it sees no modules", "nor those"}


@pytest.mark.parametrize(
    ("name", "law"),
    [("one-ulp", "guest.twins"), ("leaked-hook", "guest.twins"), ("closure-once-more", "guest.closure")],
)
def test_watchers_that_are_no_guests_fail(name: str, law: str) -> None:
    """One ulp, one hook left, one call more of a closure: the two runs differ (ATTACH-6, CLOSE-3, STEP-10)."""
    with guest.short_runs():
        (told,) = ask(get_defect(name).engine, [get_law(law)])
    assert told.outcome == FAILED
    assert any("bit for bit" in found.message for found in told.findings)


def test_runs_are_fifty_steps_long() -> None:
    """Reports compare runs of 50 steps, with and without a loss scale, on both tiers (ATTACH-6, TIER-1)."""
    seen = observe(find_engine("ours"), "twins-closure").observations
    assert list(seen) == ["twins-closure/LBFGS", "twins-closure/LBFGS, AMP"]
    for case in seen.values():
        assert len(case.facts["steps"]) == 50 and case.facts["watched"] == case.facts["unwatched"]
        assert {row.step for row in case.first_rows if row.tag.startswith("updates/norm/")} == set(range(50))
