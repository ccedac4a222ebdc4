"""The kill matrix is what the defects and the checks make it."""

from __future__ import annotations

import pytest

from torchlens_conformance.kit import kill_matrix
from torchlens_conformance.kit.checks import CHECKS
from torchlens_conformance.kit.defects import DEFECTS

_COMMITTED = kill_matrix.from_data(kill_matrix.DATA_FILE.read_text(encoding="utf-8"))


def test_every_defect_is_caught_by_exactly_the_checks_named_for_it() -> None:
    """The committed matrix agrees with what each defect names, and every check catches a defect (PROT-10)."""
    assert kill_matrix.problems(_COMMITTED) == []


def test_the_files_are_made_from_the_matrix() -> None:
    """Data file and page hold the matrix and nothing that was written by hand (PROT-10)."""
    assert kill_matrix.as_data(_COMMITTED) == kill_matrix.DATA_FILE.read_text(encoding="utf-8")
    if kill_matrix.PAGE_FILE.exists():
        assert kill_matrix.as_page(_COMMITTED) == kill_matrix.PAGE_FILE.read_text(encoding="utf-8")


def test_problems_are_named() -> None:
    """A check without a defect, a missed defect and an unnamed catch are each told (PROT-10)."""
    first, last = DEFECTS[0], DEFECTS[-1]
    without = {defect: tuple(c for c in caught if c != "scale.cost") for defect, caught in _COMMITTED.items()}
    assert "scale.cost: no defect is caught by it" in kill_matrix.problems(without)
    assert any(first.id in said for said in kill_matrix.problems({**_COMMITTED, first.id: ()}))
    more = (*_COMMITTED["tag-cut"], "surface.words")
    assert any("not named for it" in said for said in kill_matrix.problems({**_COMMITTED, "tag-cut": more}))
    assert last.id in _COMMITTED


def test_a_defect_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """The command shows what catches one defect, and writes nothing then (PROT-10)."""
    before = kill_matrix.DATA_FILE.read_bytes()
    assert kill_matrix.main(["--jobs", "1", "tag-cut"]) == 0
    assert capsys.readouterr().out.strip() == "tag-cut: tags.unchanged"
    assert kill_matrix.DATA_FILE.read_bytes() == before


@pytest.mark.kit_full
@pytest.mark.timeout(2400)
def test_a_new_measurement_gives_the_committed_matrix() -> None:
    """Measuring all defects again gives the committed matrix (PROT-10)."""
    measured = kill_matrix.measure([defect.id for defect in DEFECTS])
    assert measured == _COMMITTED
    assert all(any(check.id in caught for caught in measured.values()) for check in CHECKS)
