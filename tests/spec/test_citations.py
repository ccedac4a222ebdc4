"""Citations are found in documentation strings, in all their spellings, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlens_conformance.protocol.refusals import Refusal
from torchlens_conformance.spec import cited_clauses
from torchlens_conformance.spec.citations import clause_ids_in

# The ids below stand in plain strings, so they count for this file's subject and not as citations of this file.
_SOURCE = '''
"""A module (ROW-1)."""

LIMIT = 3
"""A constant. Clause: ROW-2."""

# A comment (ROW-3).
NAME = "a value (ROW-4)"


def helper() -> None:
    """A helper (ROW-5)."""


class TestRows:
    """A class of tests (ROW-6)."""

    def test_one(self) -> None:
        """One test (ROW-7, COLUMN-11)."""
        if NAME:
            """A string inside (ROW-8)."""


async def test_two() -> None:
    """Another (ROW-7)."""
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with one file that cites, one that does not, and a hidden one."""
    for name, text in {"deep/test_rows.py": _SOURCE, "quiet.py": "x = 1\n", ".hidden/test_no.py": _SOURCE}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_documentation_strings_are_found_with_their_places(tree: Path) -> None:
    """Strings of modules, constants, classes and functions count; comments, values and hidden folders do not."""
    file = "deep/test_rows.py"
    assert dict(cited_clauses(tree)) == {
        "COLUMN-11": (f"{file}::TestRows::test_one",),
        "ROW-1": (file,),
        "ROW-2": (file,),
        "ROW-5": (f"{file}::helper",),
        "ROW-6": (f"{file}::TestRows",),
        "ROW-7": (f"{file}::TestRows::test_one", f"{file}::test_two"),
        "ROW-8": (f"{file}::TestRows::test_one",),
    }


def test_only_tests_can_hold_a_clause(tree: Path) -> None:
    """With only_tests the strings of modules, constants and helpers do not count."""
    assert list(cited_clauses(tree, only_tests=True)) == ["COLUMN-11", "ROW-6", "ROW-7", "ROW-8"]


def test_one_file_can_be_searched(tree: Path) -> None:
    """A file is searched like a folder that holds it alone."""
    assert cited_clauses(tree / "deep" / "test_rows.py")["ROW-1"] == ("test_rows.py",)


def test_ids_are_sorted_by_number(tmp_path: Path) -> None:
    """The ninth clause comes before the tenth."""
    (tmp_path / "a.py").write_text('"""(ROW-10, ROW-9, COLUMN-2)"""\n', encoding="utf-8")
    assert list(cited_clauses(tmp_path)) == ["COLUMN-2", "ROW-9", "ROW-10"]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("It holds (ROW-2).", ["ROW-2"]),
        ("(ROW-6, ROW-11)", ["ROW-6", "ROW-11"]),
        ("Clause: ROW-6, COLUMN-1.", ["ROW-6", "COLUMN-1"]),
        ("ROW-1..4", ["ROW-1", "ROW-2", "ROW-3", "ROW-4"]),
        ("(ROW-3..ROW-4; COLUMN-7).", ["ROW-3", "ROW-4", "COLUMN-7"]),
        ("ROW-1...", ["ROW-1"]),
        ("backwards ROW-4..1", ["ROW-4..1"]),
        ("UTF-8, SHA-256 and CRC-32", []),
        ("ROW-1-2, X-ROW-1, ROW-1b, row-1, R-1", []),
    ],
)
def test_spellings_of_citations(text: str, ids: list[str]) -> None:
    """Lists, brackets and ranges are understood; names of standards and longer words are left alone."""
    assert list(clause_ids_in(text)) == ids


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_range_means_all_its_ids(first: int, length: int) -> None:
    """A range is the same as the list that it abbreviates."""
    spelled_out = ", ".join(f"ROW-{number}" for number in range(first, first + length + 1))
    assert list(clause_ids_in(f"ROW-{first}..{first + length}")) == list(clause_ids_in(spelled_out))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """A folder that is not there is refused instead of citing nothing (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        cited_clauses(tmp_path / "absent")
    assert caught.value.code == "reader_path_missing"


def test_a_file_that_does_not_parse_is_an_error(tmp_path: Path) -> None:
    """A broken file is named, not passed over."""
    (tmp_path / "broken.py").write_text('"""(ROW-1)"""\ndef (\n', encoding="utf-8")
    with pytest.raises(SyntaxError, match=r"broken\.py"):
        cited_clauses(tmp_path)
