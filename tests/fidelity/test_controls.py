"""The controls hold, and each of them can be made to fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fidelity.controls import control_faults
from fidelity.measure import Cell
from fidelity.probes import resume_points
from fidelity.received import Received, from_points
from fidelity.routes.sabotage import measure_spoiled
from fidelity.spoils import SPOILS
from fidelity.verdicts import LOSSLESS, NOT_MEASURED, PRESERVED, ROWS, RULES, WORDS, Rule, judge

from .small_stimulus import small_stimulus


@pytest.fixture(scope="module")
def sabotage_rows() -> list[dict[str, Any]]:
    """The sabotage's rows as a result holds them."""
    sent = small_stimulus()
    before, after = resume_points()
    return _rows(measure_spoiled(sent, from_points(sent), from_points([*before, *after])))


def _rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    return [
        {"id": c.row, "grid": c.grid, "verdict": judge(c.row, c.numbers), "numbers": c.numbers, "evidence": c.evidence}
        for c in cells
    ]


def _exact_rows() -> list[dict[str, Any]]:
    return [{"id": row, "grid": None, "verdict": "exact", "numbers": {}} for row in ROWS]


def test_every_row_has_a_spoil_with_its_own_lossy_word() -> None:
    """Each row of the table can be spoiled, and the spoil's word is a loss (FID-7)."""
    assert set(SPOILS) == set(ROWS)
    assert all(spoil.word in WORDS and spoil.word not in LOSSLESS for spoil in SPOILS.values())


def test_every_spoil_is_given_its_rows_word_and_changes_no_other_row(sabotage_rows: list[dict[str, Any]]) -> None:
    """The sabotage is caught row by row, without a leak (FID-7)."""
    assert {row["id"] for row in sabotage_rows} == set(ROWS)
    assert control_faults({"jsonl": _exact_rows(), "sabotage": sabotage_rows}) == []


def test_a_loss_in_the_exact_control_is_a_fault(sabotage_rows: list[dict[str, Any]]) -> None:
    """One cell of the exact route that is not lossless voids the table (FID-7)."""
    rows = _exact_rows()
    rows[0]["verdict"] = "rounded"
    (fault,) = control_faults({"jsonl": rows, "sabotage": sabotage_rows})
    assert "scalars" in fault


def test_an_unnoticed_spoil_is_a_fault(sabotage_rows: list[dict[str, Any]]) -> None:
    """A spoil that is called exact voids the table, and so does one that leaks (FID-7)."""
    rows = [dict(row) for row in sabotage_rows]
    rows[0] = {**rows[0], "verdict": "exact"}
    rows[1] = {**rows[1], "numbers": {**rows[1]["numbers"], "leaks": ["text"]}}
    faults = control_faults({"jsonl": _exact_rows(), "sabotage": rows})
    assert len(faults) == 2


def test_a_resume_check_that_cannot_fail_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted shift voids the table when the row's rules call it preserved, or when it was not measured (FID-7)."""
    sent = small_stimulus()
    (unmeasured,) = control_faults(
        {"jsonl": _exact_rows(), "sabotage": _rows(measure_spoiled(sent, from_points(sent), None))}
    )
    assert "resume" in unmeasured
    blind = (*RULES["resume"][:-2], Rule(PRESERVED, lambda n: True, "anything"))
    monkeypatch.setitem(RULES, "resume", blind)
    before, after = resume_points()
    cells = measure_spoiled(sent, from_points(sent), from_points([*before, *after]))
    (fault,) = control_faults({"jsonl": _exact_rows(), "sabotage": _rows(cells)})
    assert "'preserved' in resume, not 'rewritten'" in fault


def test_controls_that_did_not_run_are_faults() -> None:
    """No control, no table (FID-7)."""
    assert len(control_faults({})) == 2
    unmeasured = [{"id": row, "grid": None, "verdict": NOT_MEASURED, "numbers": {}} for row in ROWS]
    assert len(control_faults({"jsonl": unmeasured, "sabotage": unmeasured})) == 2 * len(ROWS)


def test_every_rule_has_a_word_of_the_closed_list_and_a_last_resort() -> None:
    """Words come from one table of rules, out of one closed list, and some rule always holds (FID-1)."""
    for row, rules in RULES.items():
        assert {rule.word for rule in rules} <= set(WORDS), row
        assert all(rule.meaning for rule in rules), row


def test_nothing_received_is_a_loss_in_every_row() -> None:
    """An empty store never earns a lossless word (FID-7)."""
    from fidelity.measure import measure

    cells = measure(small_stimulus(), Received(), capabilities={"scalar", "raw_histogram", "text_manifest", "graph"})
    assert {judge(cell.row, cell.numbers) for cell in cells} <= {"dropped silently", "not captured"}
