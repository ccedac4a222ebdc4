"""The command line of the kit: what it prints and how it exits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.kit.report_examples import PROFILE, report
from torchlens_conformance.cli import cli
from torchlens_conformance.kit.finding_subjects import CannotImport, find_subject
from torchlens_conformance.kit.report import write_report
from torchlens_conformance.protocol import Refusal

ROOT = Path(__file__).parents[2]


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "torchlens_conformance", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_list() -> None:
    """``list`` shows every check, its clauses and what it kills (PROT-1)."""
    shown = CliRunner().invoke(cli, ["list"], standalone_mode=False)
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(PROFILE.levels)
    assert "float32-cast" in next(line for line in lines if line.startswith("values.scalar"))


def test_explain() -> None:
    """``explain`` says what a check asks, with the rules of its clauses (PROT-1)."""
    shown = CliRunner().invoke(cli, ["explain", "values.scalar"], standalone_mode=False)
    assert "POINT-3: " in shown.output
    assert "float32-cast" in shown.output


def test_explain_unknown() -> None:
    """An unknown check exits 3 with a sentence (PROT-9)."""
    done = run("explain", "no.such")
    assert done.returncode == 3
    assert "kit_check_unknown" in done.stderr
    assert "Traceback" not in done.stderr


def test_verify(tmp_path: Path) -> None:
    """``verify`` exits 0 for an unaltered report whatever its verdict, and 2 for another file (PROT-1)."""
    path = write_report(report(values_text="failed").document, tmp_path)["report.json"]
    whole = CliRunner().invoke(cli, ["verify", str(path)], standalone_mode=False)
    assert whole.return_value == 0
    assert "nonconformant" in whole.output
    path.write_text(path.read_text().replace("nonconformant", "conformant"))
    assert CliRunner().invoke(cli, ["verify", str(path)], standalone_mode=False).return_value == 2


def test_certify_and_replay(tmp_path: Path) -> None:
    """A chosen check of a wrong sink fails with its reproduction line, and ``replay`` sees it again (PROT-1)."""
    target = ["tests.kit.broken_subjects:NullSink", "--reader", "tests.kit.broken_subjects:read_nothing"]
    check = "delivery.nothing-lost"
    done = run("certify", *target, "--check", check, "--report-dir", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert f"again: torchlens-conformance certify {' '.join(target)} --check {check}" in done.stdout
    assert "NullSink: nonconformant." in done.stdout
    assert "controls: " in done.stderr
    again = run("replay", str(tmp_path / "report.json"), check)
    assert again.returncode == 0, again.stderr
    assert f"{check}: failed in the report, failed now" in again.stdout


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("nowhere", "kit_subject_not_found"),
        ("no_such_module:SUBJECT", "kit_subject_not_found"),
        ("tests.kit.broken_subjects:NOTHING", "kit_subject_not_found"),
        ("tests.kit.broken_subjects:NullSink", "kit_subject_invalid"),
    ],
)
def test_targets_that_are_no_subject(target: str, code: str) -> None:
    """A name that leads nowhere is refused by name (PROT-9)."""
    with pytest.raises(Refusal) as refused:
        find_subject(target)
    assert refused.value.code == code


@pytest.mark.parametrize("content", ["import no_such_dependency", "raise ValueError('x')", "import os; os._exit(7)"])
def test_modules_that_fail(tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that raises or exits takes nobody with it (PROT-10)."""
    (tmp_path / f"failing_{abs(hash(content))}.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CannotImport):
        find_subject(f"failing_{abs(hash(content))}:SUBJECT")


def test_certify_a_module_that_fails(tmp_path: Path) -> None:
    """A subject that cannot be imported is incomplete, with a sentence and a report that verifies (PROT-10)."""
    (tmp_path / "failing.py").write_text("import os\nos._exit(0)\n")
    done = run("certify", "failing:SUBJECT", "--report-dir", "report", folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "incomplete. failing:SUBJECT could not be imported" in done.stdout
    assert run("verify", "report/report.json", folder=tmp_path).returncode == 0
