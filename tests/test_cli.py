"""The command line: help, exit codes, and sentences instead of tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def _call(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchlens_conformance", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)


@pytest.mark.parametrize(
    "arguments",
    [(), ("--help",), ("spec", "--help"), ("fidelity", "--help")]
    + [("fidelity", command, "--help") for command in ("run", "check", "table", "wires", "extra")],
)
def test_every_command_explains_itself_with_an_example(arguments: tuple[str, ...]) -> None:
    """--help names what a command does, and how it is called."""
    done = _call(*arguments)
    text = done.stdout + done.stderr
    assert "Usage:" in text
    assert "Example" in text or "Exit codes" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("spec", "JSNL-2"),
        ("fidelity", "run", "--no-such-option"),
        ("fidelity", "run", "--route", "tensorbored"),
        ("fidelity", "--route", "tensorbored"),
        ("fidelity", "run", "--checkpoint", "/no/such/folder"),
        ("fidelity", "run", "--output", "/proc/no-folder-can-be-made-here"),
        ("fidelity", "check", "--baseline", "/no/such/file"),
        ("fidelity", "table", "--input", "/no/such/file"),
    ],
)
def test_bad_usage_ends_with_three_and_a_way_out(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Wrong usage and refusals are exit code 3 and a sentence, never a traceback, and nothing is written (PROT-9)."""
    pytest.importorskip("jsonschema")
    done = _call(*arguments, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "Error" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_committed_table_is_printed() -> None:
    """`fidelity table` shows every row and both marks without measuring anything (FID-2)."""
    pytest.importorskip("jsonschema")
    done = _call("fidelity", "table", "--controls")
    assert done.returncode == 0, done.stderr
    for word in ("histogram-counts", "signed-log2-513", "writer-first", "differs from the published table"):
        assert word in done.stdout


def test_help_imports_nothing_heavy() -> None:
    """The command line starts without torch, numpy, rich or a tracker."""
    code = (
        "import sys; from torchlens_conformance.cli import cli;"
        "cli.main(['--help'], standalone_mode=False);"
        "heavy = {'torch', 'numpy', 'rich', 'wandb', 'clearml', 'tensorboard', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
