"""Catalogue, tests and documentation strings agree about which clauses exist and which are held by a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlens_conformance.spec import cited_clauses, clauses

_ROOT = Path(__file__).parents[2]
_PLANNED = Path(__file__).with_name("planned.txt")


@pytest.mark.parametrize("folder", ["tests", "torchlens_conformance", "reference_sinks", "fidelity", "benchmarks"])
def test_every_cited_clause_exists(folder: str) -> None:
    """An id that a documentation string cites stands in the catalogue."""
    known = {entry.id for entry in clauses()}
    strangers = {key: places for key, places in cited_clauses(_ROOT / folder).items() if key not in known}
    assert not strangers, f"cited, but no clauses: {strangers}; NOT_CLAUSES in citations.py lists names of standards"


def test_every_checked_clause_is_cited_by_a_test() -> None:
    """A clause called checked has a test that names it."""
    cited = cited_clauses(_ROOT / "tests", only_tests=True)
    unheld = [entry.id for entry in clauses() if entry.status == "checked" and entry.id not in cited]
    assert not unheld, f"checked, but cited by no test: {unheld}; cite them in the docstring of a test that holds them"


def test_planned_clauses_only_shrink() -> None:
    """The planned clauses are those of the committed list, which only gets shorter."""
    committed = _PLANNED.read_text(encoding="utf-8").split()
    planned = [entry.id for entry in clauses() if entry.status == "planned"]
    done = [key for key in committed if key not in planned]
    assert not done, f"no longer planned in clauses.json: {done}; delete these lines from {_PLANNED.name}"
    added = [key for key in planned if key not in committed]
    assert not added, (
        f"planned in clauses.json but not in {_PLANNED.name}: {added}; a clause that was checked must become checked "
        "again in clauses.json, and only a clause that is new to the specification may be added to the list"
    )
    assert committed == planned, f"{_PLANNED.name} repeats a clause, or is not in the order of the catalogue"
