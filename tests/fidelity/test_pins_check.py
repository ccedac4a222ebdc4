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
from fidelity.pins import Pin, pinned_text, read_pins
from fidelity.pins_check import CERTIFIED, CHANGED, NOT_INSTALLED, UNMEASURED, WITH_LOSSES, check_pins
from fidelity.versions.columns import Column, digest_of
from fidelity.versions.merge import merge_columns
from fidelity.versions.store import dump_columns
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


def test_a_pins_file_is_any_constraints_file(tmp_path: Path) -> None:
    """Lines that pin no exact version are passed over, markers and comments are understood (FID-3)."""
    path = tmp_path / "constraints.txt"
    path.write_text(
        "# ours\nnumpy>=2\nwandb==0.30.0 ; python_version > '3.9'\ncomet_ml==3.58.8  # pinned by ops\n"
        f"clearml==2.1.12  # result sha256:{'a' * 64}\n",
        encoding="utf-8",
    )
    assert read_pins(path) == [
        Pin("wandb", "0.30.0"),
        Pin("comet_ml", "3.58.8"),
        Pin("clearml", "2.1.12", "a" * 64),
    ]


@pytest.mark.parametrize(
    "text",
    ["# format: torchlens-conformance.pins.v9\n", "wandb==0.30.0  # result sha256:12\n", "wandb==1 # result x\n"],
)
def test_a_later_or_broken_pins_file_is_refused(text: str, tmp_path: Path) -> None:
    """A format that is not ours and a digest that is none are refused by name (FID-3)."""
    path = tmp_path / "pins.txt"
    path.write_text(text, encoding="utf-8")
    for broken in (path, tmp_path / "absent.txt"):
        with pytest.raises(Refusal) as caught:
            read_pins(broken)
        assert caught.value.code == "fidelity_pins_invalid"


def test_renewing_a_pin_leaves_the_rest_of_the_file_alone() -> None:
    """Only the lines of the given pins change; a new one goes behind the trackers (FID-3)."""
    text = "# [trackers] ours\nwandb==0.30.0\n\n# [tools]\nruff==1\n"
    new = pinned_text(text, [Pin("wandb", "0.31.0", "b" * 64), Pin("mlflow", "3.17.2")])
    assert new == (
        f"# [trackers] ours\nwandb==0.31.0  # result sha256:{'b' * 64}\nmlflow==3.17.2\n\n# [tools]\nruff==1\n"
    )
    assert pinned_text("", [Pin("wandb", "1")]) == "wandb==1\n"


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
