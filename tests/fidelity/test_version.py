"""One tracker at the version that is installed, measured with the committed points."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from fidelity.commands import fidelity
from fidelity.fixture import load_fixture
from fidelity.identity import read_files
from fidelity.results import load_results
from fidelity.verdicts import judge
from fidelity.versions.columns import columns_of
from fidelity.versions.store import load_columns
from fidelity.worker import without_paths
from torchlens_conformance.protocol import Refusal


@pytest.mark.trackers
def test_a_version_is_measured_under_its_own_name(tmp_path: Path) -> None:
    """The file holds the version that the package reports, digests of files and code, and the fixture (FID-6)."""
    for package in ("jsonschema", "tensorboard", "torch"):
        pytest.importorskip(package)
    output = tmp_path / "deep" / "tensorboard.json"
    command = ["version", "tensorboard", "--output", str(output), "--environment", "fidelity-here"]
    done = CliRunner().invoke(fidelity, command, standalone_mode=False, catch_exceptions=False)
    assert done.return_value == 0
    result = load_results(output)
    assert result["tensors"]["sent_digest"] == load_fixture().digest
    assert result["environment"]["name"] == "fidelity-here"
    (column,) = columns_of(result)
    files = read_files("tensorboard")
    assert files is not None
    assert column["version"] == column["package"]["reported"] == version("tensorboard")
    assert column["package"] == {
        "reported": column["version"],
        "digest": files.digest,
        "files": files.files,
        "altered": [],
    }
    assert len(column["code"]) == 64


def test_a_place_that_cannot_be_written_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured when the file could not be written afterwards (FID-3)."""
    monkeypatch.setattr("fidelity.version_commands.measure", lambda *_, **__: pytest.fail("something was measured"))
    (tmp_path / "file").write_text("", encoding="utf-8")
    command = ["version", "tensorboard", "--output", str(tmp_path / "file" / "x.json")]
    done = CliRunner().invoke(fidelity, command, standalone_mode=False)
    assert isinstance(done.exception, Refusal) and done.exception.code == "fidelity_output_invalid"


def test_every_committed_word_follows_from_its_numbers() -> None:
    """The words in the table of versions are those that the rules give for the numbers beside them (FID-1)."""
    for column in load_columns(validate=False):
        for cell in column["cells"]:
            assert cell["verdict"] == judge(cell["id"], cell["numbers"]), (column["version"], cell["id"])


def test_every_committed_column_sent_the_committed_points() -> None:
    """The digest of the points is that of the fixture, whatever machine measured a column (FID-6)."""
    digest = load_fixture().digest
    assert {c["sent_digest"] for c in load_columns(validate=False) if c["cells"]} == {digest}


def test_folders_are_named_by_what_they_are(tmp_path: Path) -> None:
    """A line of evidence names the packages' folder as such, also when this package is installed there (FID-1)."""
    import sysconfig

    packages = sysconfig.get_paths()["purelib"]
    line = f'File "{packages}/wandb/sdk.py", see {tmp_path}/run'
    assert without_paths(line, tmp_path) == 'File "<packages>/wandb/sdk.py", see <place>/run'
