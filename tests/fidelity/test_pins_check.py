"""What is installed beside what is pinned and measured: the words, the neighbours, the losses, the exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import fidelity
from fidelity import pins_check
from fidelity.identity import FilesDigest
from fidelity.pins import Pin
from fidelity.pins_check import CERTIFIED, CHANGED, NOT_INSTALLED, UNMEASURED, WITH_LOSSES, check_pins
from fidelity.versions.columns import Column, digest_of
from fidelity.versions.merge import merge_columns
from fidelity.versions.store import SCHEMA, dump_columns
from torchlens_conformance.cli import main
from torchlens_conformance.protocol import Refusal

from .version_examples import cell, column

_LOSSY = (
    cell(),
    cell("scalar-steps", word="rewritten", step_map={"100": [0], "102": [1]}),
    cell("bucket-cap", word="re-binned", largest_exact=512),
    cell("summary", word="dropped silently", grid="uniform-64"),
    cell("summary", word="dropped silently", grid="uniform-600"),
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., fidelity.PinsReport]:
    """Check a made-up machine: columns of a table, lines of a pins file, installed versions."""

    def check(
        columns: list[Column],
        pins: str = "",
        installed: Mapping[str, str] | None = None,
        files: str | None = None,
        **settings: object,
    ) -> fidelity.PinsReport:
        table, pins_file = tmp_path / "versions.json", tmp_path / "pins.txt"
        table.write_text(dump_columns(merge_columns(columns)), encoding="utf-8")
        pins_file.write_text(pins, encoding="utf-8")
        monkeypatch.setattr(pins_check, "COMMITTED", table)
        monkeypatch.setattr(pins_check, "installed_version", (installed or {}).get)
        found = None if files is None else FilesDigest(files, 9)
        monkeypatch.setattr(pins_check, "recorded_files", lambda name: found)
        return check_pins(pins=pins_file, **settings)  # type: ignore[arg-type]

    return check


def _word(report: fidelity.PinsReport) -> str:
    (status,) = report.trackers
    return status.word


def test_a_version_without_losses_is_certified(world: Callable[..., fidelity.PinsReport]) -> None:
    """Pinned, measured and lossless in every cell: certified, exit code 0 (FID-3)."""
    columns = [column("0.30.0")]
    pin = Pin("wandb", "0.30.0", digest_of(columns, "wandb", "0.30.0")).line()
    report = world(columns, pin, {"wandb": "0.30.0"})
    assert (_word(report), report.exit_code) == (CERTIFIED, 0)
    assert report.format() == "wandb 0.30.0: certified"


def test_losses_are_told_in_words(world: Callable[..., fidelity.PinsReport]) -> None:
    """A measured version names each loss in words a user knows, grids of one fate together (FID-2, FID-3)."""
    columns = [column("0.30.0", *_LOSSY)]
    report = world(columns, "wandb==0.30.0\n", {"wandb": "0.30.0"})
    assert (_word(report), report.exit_code) == (WITH_LOSSES, 0)
    assert report.trackers[0].losses["wandb-relay"] == [
        "scalar-steps: the steps you give to scalars arrive changed (100 becomes 0, 102 becomes 1)",
        "bucket-cap: histograms with many buckets arrive in other buckets, with the whole mass "
        "(exact up to 512 buckets)",
        "summary: min, max, sum and sum of squares of a histogram on uniform-64, uniform-600 do not arrive, "
        "and nothing says so",
    ]
    assert "wandb-relay (sync_tensorboard) loses:" in report.format()
    assert world(columns, "wandb==0.30.0\n", {"wandb": "0.30.0"}, strict=True).exit_code == 1


def test_only_what_one_uses_counts(world: Callable[..., fidelity.PinsReport]) -> None:
    """With --use the other routes of a tracker say nothing, by the route's id or by its name for users (FID-3)."""
    columns = [column("0.30.0", *_LOSSY), column("0.30.0", route="wandb")]
    for use in ("sync_tensorboard", "wandb-relay"):
        report = world(columns, "wandb==0.30.0\n", {"wandb": "0.30.0"}, uses=[use])
        assert list(report.trackers[0].losses) == ["wandb-relay"]
    assert _word(world(columns, "wandb==0.30.0\n", {"wandb": "0.30.0"}, uses=["run.log"])) == CERTIFIED


_BOTH = (column("0.30.0", *_LOSSY), column("0.30.0", route="wandb"), column("3.17.2", tracker="mlflow", route="mlflow"))
_INSTALLED = {"wandb": "0.30.0", "mlflow": "3.17.2"}


@pytest.mark.parametrize(
    ("trackers", "uses", "named", "remedy"),
    [
        ([], ["nope"], "'nope'", "mlflow, mlflow.log, run.log, sync_tensorboard, wandb, wandb-relay"),
        (["wandb"], ["sync_tensorbord"], "'sync_tensorbord'", "run.log, sync_tensorboard, wandb, wandb-relay"),
        (["mlflow"], ["sync_tensorboard"], "mlflow has no", "mlflow, mlflow.log"),
        (
            [],
            ["typo", "sync_tensorboard"],
            "'typo'",
            "mlflow, mlflow.log, run.log, sync_tensorboard, wandb, wandb-relay",
        ),
        (["wandb"], ["sync_tensorboard", "mlflow.log"], "mlflow.log is no use of wandb", "run.log, sync_tensorboard, "),
        (["wandb", "mlflow"], ["run.log"], "mlflow has no", "mlflow, mlflow.log"),
        (["wandb"], [""], "''", "run.log, "),
    ],
)
def test_a_use_that_says_nothing_is_refused(
    world: Callable[..., fidelity.PinsReport], trackers: list[str], uses: list[str], named: str, remedy: str
) -> None:
    """A use that is unknown, or none of a named tracker's, is refused with the names there are (FID-3, PROT-9)."""
    with pytest.raises(Refusal) as caught:
        world([*_BOTH], "", _INSTALLED, trackers=trackers, uses=uses)
    assert caught.value.code == "fidelity_route_unknown"
    assert named in caught.value.message
    assert caught.value.remedy.startswith(f"Use one of {remedy}")


def test_every_named_use_counts(world: Callable[..., fidelity.PinsReport]) -> None:
    """Uses of several trackers are all looked at, each for its own tracker (FID-3)."""
    report = world([*_BOTH], "", _INSTALLED, uses=["sync_tensorboard", "mlflow"])
    assert [(status.tracker, status.word) for status in report.trackers] == [
        ("mlflow", CERTIFIED),
        ("wandb", WITH_LOSSES),
    ]
    assert world([*_BOTH], "", _INSTALLED, trackers=["wandb"], uses=["run.log"]).trackers[0].losses == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--use", "nope"],
        ["--tracker", "wandb", "--use", "sync_tensorbord"],
        ["--tracker", "mlflow", "--use", "sync_tensorboard"],
        ["--use", "typo", "--use", "sync_tensorboard"],
        ["--tracker", "comet"],
        ["--tracker", ""],
    ],
)
def test_the_command_refuses_names_that_are_none(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The committed table refuses unknown uses and trackers with exit code 3, and prints no report (PROT-9)."""
    monkeypatch.setattr(sys, "argv", ["torchlens-conformance", "fidelity", "pins", "check", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (3, "")
    assert "Remedy: Use one of " in printed.err


@pytest.mark.parametrize("name", ["comet-ml", "Comet_ML", "comet.ml", "comet_ml"])
def test_names_of_trackers_are_compared_as_pep_503_says(world: Callable[..., fidelity.PinsReport], name: str) -> None:
    """Capitals, hyphens, underscores and dots make no other tracker, neither in --tracker nor in the pins (FID-3)."""
    columns = [column("3.58.8", tracker="comet_ml", route="comet")]
    report = world(columns, f"{name}==3.58.8\n", {"comet_ml": "3.58.8"}, trackers=[name])
    assert report.format() == "comet_ml 3.58.8: certified"


@pytest.mark.parametrize("name", ["comet", "nope", ""])
def test_an_unknown_tracker_is_refused(world: Callable[..., fidelity.PinsReport], name: str) -> None:
    """A name that is no tracker is refused with those there are; it is not called missing (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        world([*_BOTH], "", _INSTALLED, trackers=["wandb", name])
    assert caught.value.code == "fidelity_tracker_unknown"
    assert caught.value.remedy == "Use one of mlflow, wandb."


def test_pins_that_contradict_each_other_are_refused(world: Callable[..., fidelity.PinsReport]) -> None:
    """Two versions, or two results, of one tracker are refused with their lines; the last does not win (FID-3)."""
    digests = [f"  # result sha256:{letter * 64}" for letter in "ab"]
    for second in (f"WandB==0.31.0{digests[0]}", f"wandb==0.30{digests[1]}"):
        with pytest.raises(Refusal) as caught:
            world([column("0.30.0")], f"wandb==0.30.0{digests[0]}\n\n{second}\n", {"wandb": "0.30.0"})
        assert caught.value.code == "fidelity_pins_invalid"
        assert "(lines 1, 3)" in caught.value.message
    same = world([column("0.30.0")], "wandb==0.30.0\nWandB==0.30\n", {"wandb": "0.30.0"})
    assert _word(same) == CERTIFIED
    other = "wandb==0.30.0\nwandb==0.31.0 ; sys_platform == 'nowhere'\n"
    assert world([column("0.30.0")], other, {"wandb": "0.30.0"}).trackers[0].notes == []


@pytest.mark.parametrize(
    ("pins", "note"),
    [
        ("numpy==2\nwandb>=0.19,<1\n", "It is not pinned exactly: line 2 says wandb<1,>=0.19."),
        ("wandb\n", "It is not pinned exactly: line 1 says wandb."),
        ("wandb==0.30.*\n", "It is not pinned exactly: line 1 says wandb==0.30.*."),
        ("wandb @ https://user:secret@example.org/wandb.whl\n", "It is not pinned exactly: line 1 says wandb @ ...."),
        (
            "wandb==0.30.0; sys_platform == 'nowhere'",
            "It is not pinned on this machine: the marker of line 1 does not hold.",
        ),
        ("\n-r base.txt\n", "It is not pinned; the file named in line 2 is not read."),
        ("", "It is not pinned."),
    ],
)
def test_what_stands_in_place_of_a_pin_is_told(world: Callable[..., fidelity.PinsReport], pins: str, note: str) -> None:
    """A range, a bare name, an address, a marker for other machines and another file are no pins, and said (FID-3)."""
    (status,) = world([column("0.30.0")], pins, {"wandb": "0.30.0"}).trackers
    assert (status.pinned, list(status.notes)) == (None, [note])


def test_a_route_that_could_not_be_measured_is_not_certified(world: Callable[..., fidelity.PinsReport]) -> None:
    """A crashed route beside a good one makes the version unmeasured for who uses it, with the reason (FID-3)."""
    crashed = column("0.30.0", route="wandb", status="crashed", detail="exit code 1")
    columns = [column("0.30.0"), crashed, column("0.28.2", route="wandb"), column("0.29.0")]
    report = world(columns, "wandb==0.30.0", {"wandb": "0.30.0"})
    assert (_word(report), report.exit_code) == (UNMEASURED, 1)
    assert report.trackers[0].notes == ["wandb could not be measured, crashed: exit code 1"]
    assert _word(world(columns, "wandb==0.30.0", {"wandb": "0.30.0"}, uses=["sync_tensorboard"])) == CERTIFIED
    (status,) = world(columns, "wandb==0.30.0", {"wandb": "0.30.0"}, uses=["run.log"]).trackers
    assert (status.word, status.below, status.above) == (UNMEASURED, "0.28.2", None)


def test_a_row_that_was_left_out_is_told_and_certifies_nothing(world: Callable[..., fidelity.PinsReport]) -> None:
    """A measured route with a row that was not measured names it; without losses it is unmeasured still (FID-3)."""
    left_out = cell("resume", word="not measured")
    for cells, word in (((cell(),), UNMEASURED), (_LOSSY, WITH_LOSSES)):
        (status,) = world([column("0.30.0", *cells, left_out)], "wandb==0.30.0", {"wandb": "0.30.0"}).trackers
        assert status.word == word
        assert status.notes == ["wandb-relay: resume was not measured."]
        assert not any("resume" in line for line in status.losses.get("wandb-relay", ()))


def _broken_tables() -> dict[str, object]:
    good = column("0.31.0")
    broken = {
        "date": "yesterday",
        "version": 5,
        "environment": None,
        "package": {},
        "cells": [{}],
        "moment": None,
        "tracker": None,
        "stale": None,
    }
    return {
        "[{}]": [{}],
        "[1]": [1],
        "a text": "abc",
        "without a route": [{key: value for key, value in good.items() if key != "route"}],
        "no date": [{**good, "date": None}],
        **{key: [{**good, key: value}] for key, value in broken.items()},
    }


@pytest.mark.parametrize("fault", _broken_tables())
def test_a_broken_table_is_refused(world: Callable[..., fidelity.PinsReport], fault: str, tmp_path: Path) -> None:
    """A further table is validated against its schema, whatever is wrong in it (FID-2, PROT-9)."""
    pytest.importorskip("jsonschema")
    table = tmp_path / "theirs.json"
    table.write_text(json.dumps({"schema": SCHEMA, "columns": _broken_tables()[fault]}), encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        world([column("0.30.0")], "", {"wandb": "0.30.0"}, tables=[table])
    assert caught.value.code == "fidelity_result_invalid"
    assert caught.value.fields["path"] == str(table)


def test_an_unmeasured_version_names_its_neighbours(world: Callable[..., fidelity.PinsReport]) -> None:
    """An unmeasured version names the nearest measured ones and what differs between them, exit code 1 (FID-3)."""
    columns = [column("0.27.0"), column("0.28.2", cell(word="rounded")), column("0.30.0"), column("0.31.0")]
    report = world(columns, "wandb==0.30.0\n", {"wandb": "0.29.0"})
    (status,) = report.trackers
    assert (status.word, status.below, status.above, report.exit_code) == (UNMEASURED, "0.28.2", "0.30.0", 1)
    assert "nearest measured versions: 0.28.2 below, 0.30.0 above" in report.format()
    assert "Between 0.28.2 and 0.30.0 1 cell changed." in report.format()
    newest = world(columns, "", {"wandb": "1.0"}).trackers[0]
    assert (newest.below, newest.above) == ("0.31.0", None)
    oldest = world(columns, "", {"wandb": "0.1"}).trackers[0]
    assert (oldest.below, oldest.above) == (None, "0.27.0")


def test_a_version_that_could_not_be_measured_says_why(world: Callable[..., fidelity.PinsReport]) -> None:
    """A version that was tried in vain is unmeasured, with the reason (FID-3)."""
    columns = [column("0.28.2"), column("0.29.0", status="crashed", detail="exit code 1"), column("0.30.0")]
    (status,) = world(columns, "", {"wandb": "0.29.0"}).trackers
    assert status.word == UNMEASURED
    assert "wandb-relay could not be measured, crashed: exit code 1" in status.notes


def test_another_version_with_other_cells_is_changed(world: Callable[..., fidelity.PinsReport]) -> None:
    """What is installed differs from what is pinned: changed, with each cell, exit code 1 (FID-3)."""
    columns = [column("0.30.0"), column("0.31.0", cell(word="rounded", value_error=0.01))]
    pin = Pin("wandb", "0.30.0", digest_of(columns, "wandb", "0.30.0")).line()
    report = world(columns, pin, {"wandb": "0.31.0"})
    assert (_word(report), report.exit_code) == (CHANGED, 1)
    assert [str(change) for change in report.trackers[0].changes] == [
        "wandb-relay, scalars: exact -> rounded; value_error null -> 0.01"
    ]


def test_another_version_with_the_same_cells_is_not_changed(world: Callable[..., fidelity.PinsReport]) -> None:
    """A newer version that does the same keeps its word; that it is not the pinned one is said (FID-3)."""
    columns = [column("0.30.0", *_LOSSY), column("0.31.0", *_LOSSY)]
    pin = Pin("wandb", "0.30.0", digest_of(columns, "wandb", "0.30.0")).line()
    report = world(columns, pin, {"wandb": "0.31.0"})
    assert (_word(report), report.exit_code) == (WITH_LOSSES, 0)
    assert "Pinned is 0.30.0." in report.trackers[0].notes


def test_a_pinned_result_that_the_table_no_longer_holds_is_changed(world: Callable[..., fidelity.PinsReport]) -> None:
    """The same version measured with another result than the pinned digest is changed (FID-3)."""
    report = world([column("0.30.0")], Pin("wandb", "0.30.0", "0" * 64).line(), {"wandb": "0.30.0"})
    assert (_word(report), report.exit_code) == (CHANGED, 1)
    assert "pins update" in report.format()


def test_other_files_under_the_same_version_are_changed(world: Callable[..., fidelity.PinsReport]) -> None:
    """A patched package that keeps its version number is changed (FID-3)."""
    measured = column("0.30.0")
    same = world([measured], "wandb==0.30.0\n", {"wandb": "0.30.0"}, files=measured["package"]["digest"])
    assert _word(same) == CERTIFIED
    other = world([measured], "wandb==0.30.0\n", {"wandb": "0.30.0"}, files="0" * 64)
    assert (_word(other), other.exit_code) == (CHANGED, 1)
    assert "not those that were measured" in other.format()
    elsewhere = {**measured, "environment": {**measured["environment"], "platform": "Darwin arm64"}}
    assert _word(world([elsewhere], "wandb==0.30.0\n", {"wandb": "0.30.0"}, files="0" * 64)) == CERTIFIED


def test_the_contents_are_read_on_demand(
    world: Callable[..., fidelity.PinsReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was edited after its installation is found when the contents are read (FID-3)."""
    measured = column("0.30.0")
    noted = measured["package"]["digest"]
    monkeypatch.setattr(pins_check, "read_files", lambda name: FilesDigest("1" * 64, 9))
    for contents, word in ((False, CERTIFIED), (True, CHANGED)):
        report = world([measured], "wandb==0.30.0\n", {"wandb": "0.30.0"}, files=noted, contents=contents)
        assert _word(report) == word


def test_exit_codes_of_what_is_not_there(world: Callable[..., fidelity.PinsReport]) -> None:
    """A missing tracker fails only when it is named; a machine without any tracker is no success (FID-3)."""
    columns = [column("0.30.0"), column("2.1.12", tracker="clearml", route="clearml-relay")]
    some = world(columns, "", {"wandb": "0.30.0"})
    assert [status.word for status in some.trackers] == [NOT_INSTALLED, CERTIFIED]
    assert some.exit_code == 0
    assert world(columns, "", {"wandb": "0.30.0"}, trackers=["clearml"]).exit_code == 1
    assert world(columns, "", {}).exit_code == 2


def test_the_report_for_programs_validates(world: Callable[..., fidelity.PinsReport]) -> None:
    """The JSON report matches its schema in the wheel (FID-3)."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(pins_check.__file__).parent / "schemas" / "pins-check.schema.json").read_text())
    columns = [column("0.28.2", *_LOSSY), column("0.30.0")]
    for version in ("0.28.2", "0.29.0", "0.30.0"):
        jsonschema.validate(world(columns, "wandb==0.30.0\n", {"wandb": version}).as_dict(), schema)
    jsonschema.validate(world(columns).as_dict(), schema)


def test_the_check_is_quick_and_imports_no_tracker(tmp_path: Path) -> None:
    """The check of this machine loads neither a tracker nor torch, as a command and as a function (FID-3)."""
    program = (
        "import sys, fidelity\n"
        "report = fidelity.check_pins()\n"
        "heavy = {'torch', 'numpy', 'wandb', 'clearml', 'tensorboard', 'mlflow', 'comet_ml', 'jsonschema', 'rich'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
        "print(len(report.trackers))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded, trackers = done.stdout.split("\n")[:2]
    assert loaded == "[]"
    assert int(trackers) >= 3


def _as_installed(version: str, place: Path) -> dict[str, object]:
    """What the command says where an installer has noted this version of wandb, and no other tracker is looked at."""
    info = place / f"wandb-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wandb\nVersion: {version}\n", encoding="utf-8")
    root = str(Path(pins_check.__file__).parent.parent)
    command = ["fidelity", "pins", "check", "--tracker", "wandb", "--use", "sync_tensorboard", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "torchlens_conformance", *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(place), root])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["exit_code"] == done.returncode
    (status,) = report["trackers"]
    return {**status, "exit_code": done.returncode}


def test_the_committed_table_has_an_answer_for_an_unmeasured_wandb(tmp_path: Path) -> None:
    """With wandb 0.29.0 installed the check says unmeasured and names 0.28.2 and 0.30.0 (FID-3)."""
    status = _as_installed("0.29.0", tmp_path)
    assert (status["word"], status["below"], status["above"]) == (UNMEASURED, "0.28.2", "0.30.0")
    assert status["exit_code"] == 1


def test_the_committed_table_has_an_answer_for_users_of_sync_tensorboard(tmp_path: Path) -> None:
    """With wandb 0.30.0 what a user of sync_tensorboard loses is listed: steps, summaries, buckets (FID-3)."""
    status = _as_installed("0.30.0", tmp_path)
    assert (status["word"], status["exit_code"]) == (WITH_LOSSES, 0)
    losses = status["losses"]
    assert isinstance(losses, dict) and list(losses) == ["wandb-relay"]
    told = " | ".join(losses["wandb-relay"])
    for part in ("100 becomes 0, 102 becomes 1", "exact up to 512 buckets", "min, max, sum", "texts do not arrive"):
        assert part in told
