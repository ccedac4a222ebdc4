"""The catalogue holds every clause once, in order, in closed words."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlens_conformance.protocol.refusals import REFUSAL_CODES, Refusal
from torchlens_conformance.spec import Clause, clause, clauses, families, select_clauses
from torchlens_conformance.spec.catalogue import parse_catalogue
from torchlens_conformance.spec.citations import clause_ids_in

# First number and count of every family, in the order of the specification.
FAMILIES = {
    "PROT": (1, 11),
    "POINT": (1, 3),
    "TAG": (1, 6),
    "GRID": (1, 3),
    "STAT": (1, 5),
    "XFER": (1, 1),
    "STEP": (1, 11),
    "AMP": (1, 8),
    "ATTACH": (1, 9),
    "CLOSE": (1, 4),
    "ENV": (1, 1),
    "TIER": (0, 5),
    "SINK": (0, 1),
    "JSONL": (1, 4),
    "MEM": (1, 1),
    "TB": (1, 1),
    "WANDB": (1, 1),
    "MLFLOW": (1, 1),
    "COMET": (1, 1),
    "CLEARML": (1, 1),
    "FID": (1, 8),
    "GRAPH": (1, 1),
    "CB": (1, 4),
    "DATA": (0, 1),
}

GOOD: dict[str, Any] = {
    "id": "ROW-1",
    "rule": "A row is whole.",
    "level": "must",
    "origin": "seed-A",
    "binds": ("sink",),
    "status": "planned",
}


def _document(*ids: str, **changes: object) -> dict[str, object]:
    entries = [{**GOOD, "binds": ["sink"], "id": clause_id} for clause_id in ids]
    return {"version": 1, "clauses": entries, **changes}


def test_every_family_is_complete_and_in_order() -> None:
    """Families stand in the specification's order and count up without a gap."""
    numbers = {family: [member.number for member in members] for family, members in families().items()}
    wanted = {family: list(range(first, first + count)) for family, (first, count) in FAMILIES.items()}
    assert list(numbers.items()) == list(wanted.items())
    assert [member for members in families().values() for member in members] == list(clauses())


def test_no_rule_is_given_twice() -> None:
    """Two clauses never have the same id or the same rule."""
    assert len({entry.id for entry in clauses()}) == len(clauses())
    assert len({entry.rule for entry in clauses()}) == len(clauses())


def test_clauses_that_rules_refer_to_exist() -> None:
    """A rule which names another clause names one that exists."""
    known = {entry.id for entry in clauses()}
    referred = {other for entry in clauses() for other in clause_ids_in(entry.rule)}
    assert referred and referred <= known


def test_refusal_codes_of_checked_rules_are_documented() -> None:
    """A tracker code that a checked rule promises stands in the table of codes (PROT-9)."""
    words = {word for entry in clauses() if entry.status == "checked" for word in entry.rule.split("`")[1::2]}
    promised = {word for word in words if word.startswith("tracker_")}
    assert promised and promised <= set(REFUSAL_CODES)


def test_backticks_are_paired() -> None:
    """Code in a rule is opened and closed, as the generated page needs it."""
    assert [entry.id for entry in clauses() if entry.rule.count("`") % 2] == []


def test_a_clause_is_immutable() -> None:
    """A clause cannot be changed after it was made."""
    with pytest.raises(FrozenInstanceError):
        clauses()[0].status = "planned"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "row-1"),
        ("id", "ROW"),
        ("id", "ROW-01"),
        ("id", 1),
        ("rule", "No full stop"),
        ("rule", "Two\nlines."),
        ("rule", " Indented."),
        ("rule", "Two  spaces."),
        ("rule", None),
        ("level", "may"),
        ("origin", "seed-C"),
        ("binds", ()),
        ("binds", "sink"),
        ("binds", ("sink", "sink")),
        ("binds", ("store",)),
        ("status", "done"),
    ],
)
def test_a_malformed_field_is_an_error(field: str, value: object) -> None:
    """Every field of a clause is validated, and the error names the clause or the field."""
    assert asdict(Clause(**GOOD)) == GOOD
    with pytest.raises(ValueError, match="clause"):
        Clause(**{**GOOD, field: value})


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (_document("ROW-1", "ROW-1"), "number 1 where 2 is due"),
        (_document("ROW-1", "ROW-3"), "number 3 where 2 is due"),
        (_document("ROW-2"), "number 2 where 0 or 1 is due"),
        (_document("ROW-1", "COLUMN-1", "ROW-2"), "not in one piece"),
        (_document("ROW-1", version=2), "version 2"),
        (_document(clauses=[{"id": "ROW-1"}]), "fields differ"),
        (_document(clauses=[{**GOOD, "binds": ["sink"], "note": ""}]), "note"),
        (_document(clauses=[{**GOOD, "binds": "sink"}]), "not a list"),
    ],
)
def test_a_malformed_catalogue_is_an_error(document: dict[str, object], complaint: str) -> None:
    """A catalogue with a doubled, missing, misplaced or odd entry is not loaded."""
    assert [entry.id for entry in parse_catalogue(_document("ROW-0", "ROW-1", "COLUMN-1"))] == [
        "ROW-0",
        "ROW-1",
        "COLUMN-1",
    ]
    with pytest.raises(ValueError, match=complaint):
        parse_catalogue(document)


@given(st.lists(st.sampled_from([entry.id for entry in clauses()] + list(families()))))
def test_selection_keeps_the_order_of_the_catalogue(selectors: list[str]) -> None:
    """Whatever is selected, in whatever order, comes once and in catalogue order."""
    wanted = [entry for entry in clauses() if entry.id in selectors or entry.family in selectors]
    assert list(select_clauses(selectors)) == wanted
    assert select_clauses([selector.lower() for selector in selectors]) == tuple(wanted)


@pytest.mark.parametrize(
    ("asked", "near"),
    [("JSNL-2", "JSONL-2"), ("jsonl-9", "JSONL-1"), ("GRIDS", "GRID"), ("JSONL-", "JSONL-1")],
)
def test_an_unknown_id_is_refused_with_near_ones(asked: str, near: str) -> None:
    """An id that does not exist is refused by code, and the remedy names near ids (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        clause(asked)
    assert caught.value.code == "spec_clause_unknown"
    assert caught.value.fields["clause"] == asked
    found = caught.value.fields["near"]
    assert isinstance(found, tuple) and near in found
    assert near in caught.value.remedy


def test_an_id_like_no_other_is_refused_with_the_families() -> None:
    """Where nothing is near, the remedy lists the families (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        clause("???")
    assert caught.value.fields["near"] == ()
    assert all(family in caught.value.remedy for family in families())


_MEASURE = """
import sys, time
before = set(sys.modules)
start = time.process_time()
import torchlens_conformance.spec
seconds = time.process_time() - start
torchlens_conformance.spec.render()
print(seconds, *sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
print(*(name for name in sys.modules if name.startswith("torchlens_conformance.protocol")))
"""


def test_importing_the_catalogue_is_quick_and_light(tmp_path: Path) -> None:
    """Importing takes some 40 ms of processor time, and printing loads nothing but the catalogue itself."""
    seconds = []
    # From compiled files, and with room for a slower processor: an import that does work takes far more.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True, timeout=60, env=environment
        )
        loaded, protocol = done.stdout.splitlines()
        number, *packages = loaded.split()
        assert packages == ["torchlens_conformance"] and not protocol
        seconds.append(float(number))
    assert min(seconds) < 0.25
