"""Explanations belong to cells that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fidelity import findings
from fidelity.results import load_results
from fidelity.routes import ROUTE_IDS
from fidelity.verdicts import ROWS, WORDS


def test_every_explanation_names_a_route_a_row_and_a_word() -> None:
    """No explanation is tied to a cell that cannot exist (FID-2)."""
    for route, row, word in (*findings._DIFFERENCES, *findings._REMARKS):
        assert route in ROUTE_IDS
        assert row in ROWS
        assert word in WORDS


def test_every_committed_difference_is_explained_and_no_explanation_is_stale() -> None:
    """Each differing cell of the committed table has its explanation, and each explanation its cell (FID-2)."""
    pytest.importorskip("jsonschema")
    result = load_results()
    differing = {(r["id"], row["id"], row["verdict"]) for r in result["routes"] for row in r["rows"] if row["differs"]}
    present = {(r["id"], row["id"], row["verdict"]) for r in result["routes"] for row in r["rows"]}
    assert differing == set(findings._DIFFERENCES)
    assert set(findings._REMARKS) <= present


def test_no_committed_file_of_results_holds_a_path_of_a_machine() -> None:
    """Evidence names folders by what they are, not by where they lie on one machine (FID-1)."""
    for path in (Path(findings.__file__).parent / "results").glob("*.json"):
        paths = re.findall(r'["\s`]/(?:home|root|tmp|usr|work|opt|var)/', path.read_text(encoding="utf-8"))
        assert paths == [], path.name
