"""The verdict: what makes a run conformant, and what never does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.report_examples import CONTROLS, PROFILE, evidence, results
from torchlens_conformance.kit.model import (
    CONFORMANT,
    COULD_NOT_RUN,
    FAILED,
    INCOMPLETE,
    NONCONFORMANT,
    NOT_APPLICABLE,
    NOT_DECLARED,
    VOID,
    WITH_DEVIATIONS,
    ControlResult,
)
from torchlens_conformance.kit.verdict import Evidence, count_outcomes, judge


def test_everything_held() -> None:
    """A subject that passes every check, after controls that held, is conformant (PROT-1)."""
    assert judge(evidence())[0] == CONFORMANT


def test_not_declared_is_not_held_against_it() -> None:
    """A check of an undeclared capability and a hook that is not there leave a subject conformant (PROT-2, PROT-7)."""
    assert judge(evidence(values_image=NOT_DECLARED, surface_preflight=NOT_APPLICABLE))[0] == CONFORMANT


def test_failed_must_check() -> None:
    """One failed must-check makes a subject nonconformant, and the sentence names it (PROT-1)."""
    verdict, why = judge(evidence(values_text=FAILED))
    assert verdict == NONCONFORMANT
    assert "values.text" in why


def test_failed_should_check() -> None:
    """A failed should-check caps the verdict at with-deviations (PROT-10)."""
    should = next(check for check, level in PROFILE.levels.items() if level == "should")
    key = should.replace(".", "_", 1).replace("-", "_")
    verdict, why = judge(evidence(**{key: FAILED}))
    assert verdict == WITH_DEVIATIONS
    assert should in why


@pytest.mark.parametrize("outcome", [COULD_NOT_RUN, None])
def test_unanswered_check(outcome: str | None) -> None:
    """A check that could not run, or did not, makes a run incomplete: a skip never raises a verdict (PROT-1)."""
    whole = results(values_text=COULD_NOT_RUN)
    if outcome is None:
        whole = tuple(result for result in whole if result.check != "values.text")
    assert judge(replace(evidence(), results=whole))[0] == INCOMPLETE


@pytest.mark.parametrize("broken", [0, 1])
def test_broken_control(broken: int) -> None:
    """A control that did not hold makes the run void, whatever the subject did (PROT-1)."""
    controls = list(CONTROLS)
    controls[broken] = replace(controls[broken], ok=False)
    assert judge(replace(evidence(values_text=FAILED), controls=controls))[0] == VOID


def test_no_controls() -> None:
    """Without controls, or without the wiredness probe, a run is incomplete (PROT-1)."""
    assert judge(replace(evidence(), controls=()))[0] == INCOMPLETE
    assert judge(replace(evidence(), controls=CONTROLS[:2]))[0] == INCOMPLETE
    assert judge(replace(evidence(), controls=CONTROLS[2:]))[0] == INCOMPLETE


def test_unwired_reader() -> None:
    """A reader that does not report an altered value is the subject's fault: nonconformant (FID-1)."""
    unwired = replace(CONTROLS[2], ok=False, seen="it does not report scalar")
    verdict, why = judge(replace(evidence(), controls=(*CONTROLS[:2], unwired)))
    assert verdict == NONCONFORMANT
    assert "it does not report scalar" in why


def test_nothing_declared() -> None:
    """A subject that declares nothing is incomplete, and the sentence says why (PROT-2)."""
    verdict, why = judge(replace(evidence(), declared=()))
    assert verdict == INCOMPLETE
    assert "No capability is declared" in why


def test_nothing_but_surface_checks() -> None:
    """Without one passed check of a stored value nothing shows that the sink stores anything (PROT-1)."""
    values = {check.replace(".", "_").replace("-", "_"): NOT_DECLARED for check in PROFILE.levels if "values." in check}
    assert judge(evidence(**values))[0] == INCOMPLETE


def test_memory_is_capped() -> None:
    """A sink that is read in its own process is with-deviations at best (MEM-1)."""
    assert judge(replace(evidence(), in_process_read=True))[0] == WITH_DEVIATIONS


def test_known_deviation() -> None:
    """A failure that is a known deviation gives with-deviations (PROT-1)."""
    marked = tuple(
        replace(result, deviation="deviation: float32") if result.outcome == FAILED else result
        for result in results(values_scalar=FAILED)
    )
    assert judge(replace(evidence(), results=marked))[0] == WITH_DEVIATIONS


def test_reader_is_never_excused() -> None:
    """A reader that does not read is not excused by a known deviation (FID-1)."""
    marked = tuple(
        replace(result, deviation="deviation: no") if result.outcome == FAILED else result
        for result in results(reader_sees_changes=FAILED)
    )
    assert judge(replace(evidence(), results=marked))[0] == NONCONFORMANT


def test_wrong_list_of_deviations() -> None:
    """A wrong list of known deviations makes a run incomplete (PROT-1)."""
    verdict, why = judge(replace(evidence(), deviation_problems=("values.text passed, so its entry is stale.",)))
    assert verdict == INCOMPLETE
    assert "stale" in why


def test_empty_evidence() -> None:
    """No evidence at all is never conformant (PROT-1)."""
    nothing = Evidence(levels={}, results=(), controls=(), declared=())
    assert judge(nothing)[0] == INCOMPLETE
    assert judge(replace(nothing, controls=(ControlResult("wiredness probe", "", "", True),)))[0] == INCOMPLETE


def test_counts_keep_words_apart() -> None:
    """Not declared, not applicable, could not run and not run are counted apart (PROT-1)."""
    some = results(values_image=NOT_DECLARED, surface_preflight=NOT_APPLICABLE, values_text=COULD_NOT_RUN)[:-1]
    counts = count_outcomes(PROFILE.levels, some)
    words = ("not_declared", "not_applicable", "could_not_run", "not_run")
    assert [counts[word] for word in words] == [1, 1, 1, 1]
    assert counts["expected"] == len(PROFILE.levels) - 2
    assert counts["executed"] == counts["expected"] - 2
