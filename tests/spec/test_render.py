"""The catalogue as text: all, a family, one clause with its fields, and what cannot be found."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from torchlens_conformance.protocol.refusals import Refusal
from torchlens_conformance.spec import clauses, families, render
from torchlens_conformance.spec.command import spec

_ONE = """\
STEP-3
  level   must
  origin  seed-A
  binds   engine
  status  checked
  rule    A step scope inside another is refused
          `watch_step_conflict`; a negative step, or one that is no
          integer, `watch_step_invalid`."""

_FAMILY = """\
clause  level  status   rule
--------------------------------------------------------------------------------
ENV-1   must   checked  `TORCHLENS_WATCH_DISABLE=1` can only turn collection
                        off, which a `torchlens/run/disabled` row records; no
                        environment variable turns anything on.
--------------------------------------------------------------------------------
1 clause: 1 checked, 0 planned"""


def test_one_id_gives_all_its_fields() -> None:
    """One clause is shown with level, origin, parties, status and rule."""
    assert render("STEP-3", width=68) == _ONE
    assert render([" step-3 "], width=68) == _ONE


def test_a_family_gives_a_table() -> None:
    """A family is a table, also when it has one member."""
    assert render("ENV", width=80) == _FAMILY
    assert render(["env", "ENV-1"], width=80) == _FAMILY


def test_several_selectors_give_one_table() -> None:
    """Families and ids mix; each clause comes once, in catalogue order."""
    lines = render(["TB-1", "GRID", "GRID-2"]).splitlines()
    rows = [line.split()[0] for line in lines[2:-2] if not line.startswith(" ")]
    assert rows == ["GRID-1", "GRID-2", "GRID-3", "TB-1"]


@pytest.mark.parametrize("nothing", [None, (), []])
def test_no_selector_gives_everything(nothing: list[str] | None) -> None:
    """Without a selector every clause has its row."""
    text = render(nothing)
    firsts = {line.split()[0] for line in text.splitlines()}
    assert {entry.id for entry in clauses()} <= firsts
    assert text.splitlines()[-1].startswith(f"{len(clauses())} clauses: ")


@given(st.sampled_from([entry.id for entry in clauses()] + list(families())), st.integers(0, 200))
def test_nothing_is_lost_by_wrapping(selector: str, width: int) -> None:
    """At any width the rule's words are all there, and only a single long word may pass the edge."""
    text = render(selector, width=width)
    words = text.split()
    for entry in (entry for entry in clauses() if selector in (entry.id, entry.family)):
        wanted = entry.rule.split()
        assert any(words[at : at + len(wanted)] == wanted for at in range(len(words)))
    for line in text.splitlines():
        assert line == line.rstrip()
        assert len(line) <= max(width, 60) or len(line.split()) <= 5


def test_an_unknown_id_is_refused() -> None:
    """Text is never made for an id that does not exist (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        render(["JSONL-1", "JSONL-77"])
    assert caught.value.code == "spec_clause_unknown"
    assert caught.value.fields["near"] == ("JSONL-1", "JSONL-2", "JSONL-3", "JSONL-4")


def test_the_command_prints_what_render_gives() -> None:
    """The command line shows the same text as the function, at the terminal's width."""
    result = CliRunner().invoke(spec, ["STEP-3"], env={"COLUMNS": "68"})
    assert (result.exit_code, result.output) == (0, _ONE + "\n")


def test_the_command_refuses_an_unknown_id() -> None:
    """The command lets the refusal through to the one place that prints refusals (PROT-9)."""
    result = CliRunner().invoke(spec, ["JSNL-2"])
    assert isinstance(result.exception, Refusal)
