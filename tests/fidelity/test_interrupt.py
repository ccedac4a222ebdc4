"""Ctrl-C in the middle of a real measurement."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

for _package in ("clearml", "jsonschema", "tensorboard", "torch", "wandb"):
    pytest.importorskip(_package)


def _descendants_of(group_leader: int) -> list[int]:
    """Processes whose parent chain starts at ``group_leader``, by /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    found, frontier = [], [group_leader]
    while frontier:
        parent = frontier.pop()
        children = [child for child, its_parent in parents.items() if its_parent == parent]
        found += children
        frontier += children
    return found


# A shell without job control starts background commands with the interrupt ignored, and children inherit that.
_INTERRUPTIBLE = """
import signal
from torchlens_conformance.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


@pytest.mark.trackers
def test_ctrl_c_stops_every_child_and_says_what_was_not_done(tmp_path: Path) -> None:
    """An interrupt during the routes ends with exit code 2, a table that says so, and no process left (FID-3)."""
    command = [sys.executable, "-c", _INTERRUPTIBLE, "fidelity", "check"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        for line in process.stderr:
            if "wandb-relay: sending" in line:
                break
        children: list[int] = []
        while not children and process.poll() is None:  # The line comes just before the child.
            children = _descendants_of(process.pid)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=200)
    assert process.returncode == 2, errors
    assert "interrupted" in output
    assert "Traceback" not in errors
    alive = [child for child in children if Path(f"/proc/{child}").exists() and _state(child) != "Z"]
    assert alive == []
    assert not list(tmp_path.glob("fidelity-*"))


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"
