"""The jobs of the version matrix come from tox's own list, and the shared requirements from the pins."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from fidelity.commands import fidelity
from fidelity.pins import pinned_versions
from fidelity.versions.matrix import MatrixJob, failed_jobs, jobs_json, matrix_jobs, parse_dependencies, read_jobs
from torchlens_conformance.protocol import Refusal

_ROOT = Path(__file__).parent.parent.parent
_DEPENDENCIES = """\
[testenv:fidelity-wandb0282]
deps =
  wandb==0.28.2
  torch==2.13.0
  tensorboard==2.21.0

[testenv:fidelity-tb2200]
deps = tensorboard==2.20.0
"""


def test_jobs_are_read_from_what_tox_says() -> None:
    """The version of a job is that of its own tracker, whatever else is installed (FID-3)."""
    jobs = parse_dependencies(_DEPENDENCIES)
    assert jobs == [
        MatrixJob("fidelity-wandb0282", "wandb", "0.28.2"),
        MatrixJob("fidelity-tb2200", "tensorboard", "2.20.0"),
    ]
    document = json.loads(jobs_json(jobs))
    assert document["include"][0] == {"environment": "fidelity-wandb0282", "tracker": "wandb", "version": "0.28.2"}
    assert read_jobs(document) == jobs


def test_an_environment_without_a_version_is_refused() -> None:
    """An environment that pins no version of its tracker would be measured under a wrong name (FID-3)."""
    with pytest.raises(Refusal) as caught:
        parse_dependencies(_DEPENDENCIES.replace("wandb==0.28.2", "wandb>=0.28"))
    assert caught.value.code == "fidelity_matrix_unreadable"
    assert "fidelity-wandb0282" in str(caught.value)


def test_toxs_report_says_why_an_environment_failed() -> None:
    """A failed installation and a failed measurement are told apart; other environments are no jobs (FID-3)."""

    def step(code: int, *words: str) -> dict[str, object]:
        return {"command": list(words), "retcode": code, "output": "", "err": "no solution\n"}

    report = {
        "testenvs": {
            "fidelity-wandb0282": {"setup": [step(0, "uv", "venv"), step(1, "uv", "install", "wandb==0.28.2")]},
            "fidelity-wandb0300": {"setup": [step(0, "pip", "wandb==0.30.0")], "test": [step(2, "measure")]},
            "fidelity-wandb0310": {"setup": [step(0, "pip", "wandb==0.31.0")], "test": [step(0, "measure")]},
            "lint": {"setup": [step(1, "pip", "ruff==1")]},
        }
    }
    assert {job.version: why for job, why in failed_jobs(report).items()} == {
        "0.28.2": "the installation failed: no solution",
        "0.30.0": "the measurement failed: no solution",
        "0.31.0": "",
    }


def test_outside_a_checkout_there_is_no_matrix(tmp_path: Path) -> None:
    """Where tox knows no such environments the command refuses (FID-3)."""
    pytest.importorskip("tox")
    (tmp_path / "tox.ini").write_text("[tox]\nenv_list = py\n", encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        matrix_jobs(tmp_path)
    assert caught.value.code == "fidelity_matrix_unreadable"


def test_the_matrix_of_this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix has at least fourteen versions of five trackers, the pinned ones among them (FID-3)."""
    pytest.importorskip("tox")
    monkeypatch.chdir(_ROOT)
    done = CliRunner().invoke(fidelity, ["matrix"], standalone_mode=False, catch_exceptions=False)
    jobs = read_jobs(json.loads(done.output))
    assert len({(job.tracker, job.version) for job in jobs}) >= 14
    assert {job.tracker for job in jobs} == {"wandb", "clearml", "tensorboard", "mlflow", "comet_ml"}
    pinned = pinned_versions()
    assert {(job.tracker, pinned[job.tracker]) for job in jobs} <= {(job.tracker, job.version) for job in jobs}
    for job in jobs:
        digits = re.sub(r"\D", "", job.version)
        assert job.environment.endswith(digits), "the environment's name holds its version"


def test_what_the_environments_share_is_pinned() -> None:
    """torch, and the TensorBoard under the relays, are those of the pins file (FID-3)."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(_ROOT / "tox.ini", encoding="utf-8")
    pinned = pinned_versions()
    assert tox["versions"]["numpy"] == f"numpy=={pinned['numpy']}"
    assert tox["versions"]["torch"].split() == [f"torch=={pinned['torch']}", "google-crc32c"]
    assert tox["versions"]["relay"].split() == ["{[versions]torch}", f"tensorboard=={pinned['tensorboard']}"]


def test_the_workflow_takes_its_jobs_from_the_matrix() -> None:
    """The ready workflow measures what tox lists, keeps going after a failure and merges what there is (FID-3)."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((_ROOT / ".ci" / "versions.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert any("fidelity matrix" in step.get("run", "") for step in jobs["list"]["steps"])
    strategy = jobs["measure"]["strategy"]
    assert strategy == {"fail-fast": False, "matrix": "${{ fromJSON(needs.list.outputs.matrix) }}"}
    commands = [step["run"] for step in jobs["measure"]["steps"] if "run" in step]
    assert any("tox run -e ${{ matrix.environment }} --result-json" in command for command in commands)
    assert jobs["merge"]["if"].startswith("always()")
    merge = jobs["merge"]["steps"]
    (place,) = [number for number, step in enumerate(merge) if "fidelity merge" in step.get("run", "")]
    # The page of what could be read is uploaded, and the job is red all the same.
    assert merge[place]["run"].endswith("--output merged") and not merge[place].get("continue-on-error")
    assert (merge[place + 1]["if"], merge[place + 1]["with"]["path"]) == ("always()", "merged")
