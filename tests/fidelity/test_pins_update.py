"""Renewing pins: the diff is shown before anything is written, and pins and table agree afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fidelity.commands import fidelity
from fidelity.pins import Pin, read_pins
from fidelity.pins_update import plan_update, update_places
from fidelity.results import dump_results
from fidelity.versions.columns import digest_of
from fidelity.versions.store import dump_columns, load_columns
from torchlens_conformance.protocol import Refusal

from .version_examples import cell, column, measured_file

pytest.importorskip("jsonschema")


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team's folder: pins and a table for 0.30.0, a measured file of 0.31.0 in which one cell changed."""
    columns = [column("0.30.0")]
    pin = Pin("wandb", "0.30.0", digest_of(columns, "wandb", "0.30.0"))
    (tmp_path / "pins.txt").write_text(f"numpy>=2\n{pin.line()}\n", encoding="utf-8")
    (tmp_path / "table.json").write_text(dump_columns(columns), encoding="utf-8")
    (tmp_path / "new.json").write_text(dump_results(measured_file("0.31.0", cell(word="rounded"))), encoding="utf-8")
    return tmp_path


def _update(team: Path, *arguments: str, answer: str = "") -> Result:
    files = ["--pins", str(team / "pins.txt"), "--table", str(team / "table.json"), "--from", str(team / "new.json")]
    command = ["pins", "update", *files, *arguments]
    return CliRunner().invoke(fidelity, command, input=answer, standalone_mode=False, catch_exceptions=False)


def test_the_diff_comes_before_the_question(team: Path) -> None:
    """Each cell that differs is shown; without a yes nothing is written (FID-3)."""
    before = (team / "pins.txt").read_bytes(), (team / "table.json").read_bytes()
    done = _update(team, answer="n\n")
    assert done.return_value == 1
    assert "wandb: 0.30.0 -> 0.31.0\n  wandb-relay, scalars: exact -> rounded\n" in done.output
    assert "Nothing was written." in done.output
    assert before == ((team / "pins.txt").read_bytes(), (team / "table.json").read_bytes())


def test_pins_and_table_agree_afterwards(team: Path) -> None:
    """With --yes the pin holds version and result digest of a column that the table holds (FID-3)."""
    assert _update(team, "--yes").return_value == 0
    (pin,) = read_pins(team / "pins.txt")
    columns = load_columns(team / "table.json")
    assert [c["version"] for c in columns] == ["0.30.0", "0.31.0"]
    assert pin == Pin("wandb", "0.31.0", digest_of(columns, "wandb", "0.31.0"))
    assert (team / "pins.txt").read_text(encoding="utf-8").startswith("numpy>=2\n")
    again = _update(team, "--yes")
    assert "the result is the pinned one" in again.output


def test_what_could_not_be_measured_is_not_pinned(team: Path) -> None:
    """A crashed route leaves its tracker's pin alone, is told, and the exit code is 2 (FID-3)."""
    crashed = measured_file("0.31.0", status="crashed", detail="exit code 1")
    (team / "new.json").write_text(dump_results(crashed), encoding="utf-8")
    before = (team / "pins.txt").read_bytes()
    done = _update(team, "--yes")
    assert done.return_value == 2
    assert "wandb, wandb-relay: not pinned, crashed: exit code 1" in done.output
    assert (team / "pins.txt").read_bytes() == before


def test_a_version_is_pinned_whole_or_not_at_all(team: Path) -> None:
    """One crashed route beside a measured one leaves the tracker's pin alone (FID-3)."""
    columns = [column("0.31.0"), column("0.31.0", route="wandb", status="crashed", detail="exit code 1")]
    (team / "new.json").write_text(dump_columns(columns), encoding="utf-8")
    before = (team / "pins.txt").read_bytes()
    assert _update(team, "--yes").return_value == 2
    assert (team / "pins.txt").read_bytes() == before


def test_the_highest_version_is_pinned_or_the_pinned_one_kept(team: Path) -> None:
    """Of many measured versions the highest is pinned; --keep renews only the digest of the pinned one (FID-3)."""
    (team / "new.json").write_text(
        dump_columns([column("0.9.0"), column("0.30.0", cell(word="rounded"))]), encoding="utf-8"
    )
    assert _update(team, "--yes", "--keep").return_value == 0
    (kept,) = read_pins(team / "pins.txt")
    assert kept.version == "0.30.0"
    (team / "new.json").write_text(dump_columns([column("0.9.0"), column("0.31.0")]), encoding="utf-8")
    assert _update(team, "--yes", "--keep").return_value == 2
    assert read_pins(team / "pins.txt") == [kept]
    assert _update(team, "--yes").return_value == 0
    assert read_pins(team / "pins.txt")[0].version == "0.31.0"


def test_a_first_pin_has_nothing_to_compare_with(tmp_path: Path) -> None:
    """A team that begins gets its first pins from nothing (FID-3)."""
    places = update_places(tmp_path, pins=tmp_path / "pins.txt", table=tmp_path / "table.json")
    plan = plan_update([column("0.31.0")], places, trackers=())
    assert (
        plan.format() == "wandb: not pinned -> 0.31.0\n  nothing to compare with: what was pinned is not in the table"
    )
    assert plan_update([column("0.31.0")], places, trackers=["clearml"]).pins == []


def test_outside_a_checkout_the_files_must_be_named(tmp_path: Path) -> None:
    """The files of the installed package are never renewed by accident (FID-3)."""
    with pytest.raises(Refusal) as caught:
        update_places(tmp_path, pins=None, table=None)
    assert caught.value.code == "fidelity_pins_invalid"
