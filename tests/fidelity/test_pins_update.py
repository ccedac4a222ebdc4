"""Renewing pins: the diff is shown before anything is written, and pins and table agree afterwards."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fidelity import pins_update
from fidelity.commands import fidelity
from fidelity.pins import Pin, read_pins
from fidelity.pins_update import plan_update, update_places
from fidelity.results import dump_results
from fidelity.versions.changes import route_changes
from fidelity.versions.columns import cells_of, digest_of
from fidelity.versions.store import dump_columns, load_columns
from fidelity.versions.told import told
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


_ROUNDED = """\
wandb: 0.30.0 -> 0.31.0
  wandb-relay (sync_tensorboard), scalars: before: kept; now: values of scalars arrive rounded
    exact -> rounded
"""


def _update(team: Path, *arguments: str, answer: str = "") -> Result:
    files = ["--pins", str(team / "pins.txt"), "--table", str(team / "table.json"), "--from", str(team / "new.json")]
    command = ["pins", "update", *files, *arguments]
    return CliRunner().invoke(fidelity, command, input=answer, standalone_mode=False, catch_exceptions=False)


def test_the_diff_comes_before_the_question(team: Path) -> None:
    """Each cell that differs is shown; without a yes nothing is written (FID-3)."""
    before = (team / "pins.txt").read_bytes(), (team / "table.json").read_bytes()
    done = _update(team, answer="n\n")
    assert done.return_value == 1
    assert _ROUNDED in done.output
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
    assert plan.format() == "wandb: not pinned -> 0.31.0\n  nothing to compare with: it was not pinned"
    assert plan_update([column("0.31.0")], places, trackers=["clearml"]).pins == []


def _left(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_committed_table_knows_what_a_first_table_does_not(team: Path) -> None:
    """A pinned version that stands in the committed table alone is compared cell by cell, as changes does (FID-3)."""
    committed = load_columns(validate=False)
    expected = route_changes(*(cells_of(committed, "wandb", version) for version in ("0.19.11", "0.30.0")))
    assert expected
    (team / "pins.txt").write_text("wandb==0.19.11\n", encoding="utf-8")
    (team / "table.json").unlink()
    (team / "new.json").write_text(
        dump_columns([c for c in committed if (c["tracker"], c["version"]) == ("wandb", "0.30.0")]), encoding="utf-8"
    )
    done = _update(team, "--tracker", "wandb", "--yes")
    lines = done.output.splitlines()[:-1]
    assert lines[0] == "wandb: 0.19.11 -> 0.30.0"
    assert [line[2:] for line in lines[1:] if line[2] != " "] == [change.sentence for change in told(expected)]
    behind = [line[4:] for line in lines[1:] if line[2] == " "]
    assert behind == [line for change in told(expected) for line in change.numbers] and behind


def test_a_pin_is_compared_with_the_table_that_holds_its_result(team: Path) -> None:
    """What was pinned is told from what a table says of the same version; one that is in no table is said (FID-3)."""
    assert _update(team, answer="n\n").output.startswith(_ROUNDED)
    other = f"wandb==0.30.0  # result sha256:{'0' * 64}\n"
    (team / "pins.txt").write_text(other, encoding="utf-8")
    told = _update(team, answer="n\n").output
    assert "  what was pinned for 0.30.0 is not what the table says of it\n" in told
    (team / "pins.txt").write_text("wandb==0.1\n", encoding="utf-8")
    assert "  nothing to compare with: 0.1 is in no table\n" in _update(team, answer="n\n").output


def test_names_are_compared_as_pep_503_says(team: Path) -> None:
    """A pin that is spelled another way is renewed in its place, in a file with the line ends it had (FID-3)."""
    columns = [column("3.58.8", tracker="comet_ml", route="comet")]
    (team / "new.json").write_text(dump_columns(columns), encoding="utf-8")
    (team / "pins.txt").write_bytes(b"numpy>=2\r\nComet-ML == 3.54.2  # pinned by ops\r\n")
    assert _update(team, "--tracker", "COMET.ml", "--yes").return_value == 0
    digest = digest_of(columns, "comet_ml", "3.58.8")
    expected = f"numpy>=2\r\nComet-ML == 3.58.8  # pinned by ops  # result sha256:{digest}\r\n"
    assert (team / "pins.txt").read_bytes() == expected.encode()


def test_an_unknown_tracker_is_refused(team: Path) -> None:
    """A name that is no tracker is refused with those there are, before anything is written (FID-3, PROT-9)."""
    before = _left(team)
    for names in (["nope"], ["wandb", "comet"]):
        with pytest.raises(Refusal) as caught:
            _update(team, *(part for name in names for part in ("--tracker", name)), "--yes")
        assert caught.value.code == "fidelity_tracker_unknown"
        assert caught.value.remedy == "Use one of clearml, comet_ml, mlflow, tensorboard, wandb."
    assert _left(team) == before


def test_a_named_tracker_that_cannot_be_pinned_is_told(team: Path) -> None:
    """A tracker that was asked for and has no measurement is told, beside the one that is pinned: exit 2 (FID-3)."""
    done = _update(team, "--tracker", "wandb", "--tracker", "mlflow", "--yes")
    assert done.return_value == 2
    assert re.search("^mlflow: not pinned, (nothing was measured of it|it is not installed)$", done.output, re.M)
    assert read_pins(team / "pins.txt")[0].version == "0.31.0"
    (team / "pins.txt").write_text("wandb==0.29.0\n", encoding="utf-8")
    kept = _update(team, "--yes", "--keep")
    assert (kept.return_value, kept.output) == (2, "wandb: not pinned, the pinned 0.29.0 was not measured\n")


@pytest.mark.parametrize(
    "pins",
    [
        "wandb==0.30.0 \\\n    --hash=sha256:12\n",
        "wandb==0.30.0 ; os_name == 'posix'\nWandB==0.30.0 ; os_name == 'nt'\n",
        "wandb==0.30.0\nwandb==0.29.0\n",
        "wandb>=0.30.0\n",
    ],
)
@pytest.mark.parametrize("measuring", [False, True])
def test_a_pin_that_cannot_be_renewed_is_refused(
    team: Path, pins: str, measuring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that one version cannot be put into is refused before anything is measured or written (FID-3)."""
    monkeypatch.setattr(pins_update, "installed_version", lambda name: "0.31.0")
    (team / "pins.txt").write_text(pins, encoding="utf-8")
    before = _left(team)
    with pytest.raises(Refusal) as caught:
        if measuring:
            places = update_places(team, pins=team / "pins.txt", table=team / "table.json")
            pins_update.measured_columns(places, trackers=["wandb"], timeout=1)
        else:
            _update(team)  # Refused before the question, which nobody answers here.
    assert caught.value.code == "fidelity_pins_invalid"
    assert _left(team) == before


@pytest.mark.parametrize("option", ["--pins", "--table"])
@pytest.mark.parametrize("place", ["/proc/p.txt", "absent/p.txt", "new.json/p.txt", "same.txt", "pipe"])
def test_both_places_are_tried_first(team: Path, option: str, place: str) -> None:
    """A place that takes no file is refused before anything is written, and no folder is made (FID-3, PROT-9)."""
    other = "--table" if option == "--pins" else "--pins"
    os.mkfifo(team / "pipe")
    before = _left(team)
    with pytest.raises(Refusal) as caught:
        _update(team, option, str(team / place), other, str(team / "same.txt"), "--yes")
    assert caught.value.code == "fidelity_output_invalid"
    assert _left(team) == before
    assert not (team / "absent").exists()
    assert (team / "pipe").is_fifo()


def test_outside_a_checkout_the_files_must_be_named(tmp_path: Path) -> None:
    """The files of the installed package are never renewed by accident (FID-3)."""
    with pytest.raises(Refusal) as caught:
        update_places(tmp_path, pins=None, table=None)
    assert caught.value.code == "fidelity_pins_invalid"
