"""The pytest plugin: one item a check, and a verdict where all results meet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_MODULE = """
import pytest
from torchlens_conformance.kit import certification
from tests.kit.broken_subjects import JSONL, NULL
{mark}
test_sink = certification({subject}, report_dir="report")
"""


def run(folder: Path, *arguments: str, subject: str = "JSONL", mark: str = "", xdist: bool = False) -> tuple[int, str]:
    """Run pytest on a module with one certification; return its exit code and output."""
    (folder / "test_it.py").write_text(_MODULE.format(subject=subject, mark=mark))
    plugins = ["-p", "torchlens_conformance.kit.plugin", *(["-p", "xdist", "-n", "2"] if xdist else [])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugins, *arguments, "test_it.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_ids_are_stable(tmp_path: Path) -> None:
    """Each check is an item named after it, and collecting imports nothing of the engine (PROT-1)."""
    code, text = run(tmp_path, "--collect-only", "-q")
    assert code == 0
    for name in ("controls", "wiredness", "values.scalar", "reader.sees-changes"):
        assert f"test_it.py::test_sink::{name}" in text


def test_part_of_a_profile(tmp_path: Path) -> None:
    """A chosen part passes, and is called incomplete, no certificate (PROT-1)."""
    code, text = run(tmp_path, "-k", "values.scalar or surface.words")
    assert code == 0
    assert "test_it.py::test_sink: incomplete, no certificate: Only a part of the profile was run" in text


def test_results_of_workers_meet(tmp_path: Path) -> None:
    """Under xdist the verdict is made where the results of all workers meet (PROT-1)."""
    code, text = run(tmp_path, "-k", "values or wiredness", xdist=True, subject="NULL")
    assert code == 1
    assert text.count("certification =") == 1
    assert "test_it.py::test_sink: nonconformant: The wiredness probe did not hold" in text
    assert (tmp_path / "report" / "report.json").exists()


def test_first_failure_ends_the_run(tmp_path: Path) -> None:
    """With -x a run ends at the first failure and is no certificate (PROT-1)."""
    code, text = run(tmp_path, "-x", "-k", "values", subject="NULL")
    assert code == 1
    assert "1 failed" in text
    assert "again: pytest 'test_it.py::test_sink::values." in text


def test_skips_are_no_success(tmp_path: Path) -> None:
    """A module whose mark skips everything fails: a skip never raises a verdict (PROT-1)."""
    code, text = run(tmp_path, mark="pytestmark = pytest.mark.skip(reason='later')")
    assert code == 1
    assert "incomplete, no certificate" in text


def test_fixture_that_skips(tmp_path: Path) -> None:
    """A module whose autouse fixture skips runs nothing, and gets a verdict that says so (PROT-1)."""
    fixture = "@pytest.fixture(autouse=True)\ndef later():\n    pytest.skip('later')\n"
    code, text = run(tmp_path, mark=fixture)
    assert code == 1
    assert "test_it.py::test_sink: incomplete, no certificate: none of its 38 checks ran" in text
    assert "passed" not in text.splitlines()[-1]


def test_fixtures_of_the_module_hold(tmp_path: Path) -> None:
    """What a module's fixture sets up is there for the items, and taken down after them (PROT-1)."""
    fixture = (
        "@pytest.fixture(autouse=True, scope='module')\ndef told():\n"
        "    open('up', 'w').close()\n    yield\n    open('down', 'w').close()\n"
    )
    code, _ = run(tmp_path, "-k", "surface.words", mark=fixture)
    assert code == 0
    assert (tmp_path / "up").exists() and (tmp_path / "down").exists()


@pytest.mark.parametrize("xdist", [False, True])
@pytest.mark.parametrize(
    "skip", ["pytest.skip('later', allow_module_level=True)", "pytest.importorskip('no_such_tracker')"]
)
def test_module_that_skips_itself(tmp_path: Path, skip: str, xdist: bool) -> None:
    """A module that skips itself whole does not end as a success, and a verdict names the reason (PROT-1)."""
    code, text = run(tmp_path, mark=skip, xdist=xdist)
    assert code == 1
    assert text.count("test_it.py: incomplete, no certificate: the module skipped itself") == 1
    assert ("later" if "later" in skip else "no_such_tracker") in text.split("skipped itself")[1]


def test_unused_plugin_imports_nothing(tmp_path: Path) -> None:
    """Without a certification the plugin imports nothing of the kit but itself (PROT-1)."""
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    mine = sorted(name for name in sys.modules if name.startswith('torchlens_conformance'))\n"
        "    name = 'torchlens_conformance'\n"
        "    assert mine == [name, name + '.kit', name + '.kit.plugin']\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "torchlens_conformance.kit.plugin", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
