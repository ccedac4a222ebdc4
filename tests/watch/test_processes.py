"""Data-parallel and sharded runs on gloo, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .programs import DATA_PARALLEL, FULLY_SHARDED

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")

ROOT = Path(__file__).parents[2]


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a program and return what it printed last."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    printed: dict[str, Any] = json.loads(output.splitlines()[-1])
    return printed


def test_rank_zero_emits_the_reduced_gradients(tmp_path: Path) -> None:
    """One process emits, what it emits is averaged over all, and the other one says so (CLOSE-1, TAG-6)."""
    processes = [start(DATA_PARALLEL, rank, 2, tmp_path) for rank in range(2)]
    first, second = map(finish, processes)
    assert first["rows"] == {str(n): pytest.approx(value, rel=1e-12) for n, value in enumerate(first["held"])}
    assert first["held"] == second["held"] and first["disabled"] is None
    assert second["points"] == 0 and second["rows"] == {}
    assert second["disabled"] == "rank 1: rank 0 emits" and "rank 0 emits" in second["notes"][0]
    assert first["hooks"] == second["hooks"] == 0


def test_rank_zero_watches_operations(tmp_path: Path) -> None:
    """At op grain the inner model is watched on the rank that emits, with a second session on it (TIER-3, TAG-6)."""
    processes = [start(DATA_PARALLEL, rank, 2, tmp_path) for rank in range(2)]
    first, second = map(finish, processes)
    assert first["counts"] == {"0": 12, "1": 12, "2": 12} and first["ops_disabled"] is None
    assert second["ops"] == 0 and second["ops_disabled"] == "rank 1: rank 0 emits"
    assert first["wrapped"] is second["wrapped"] is False


def test_sharded_parameters_are_refused(tmp_path: Path) -> None:
    """Parameters that fully_shard made are refused by name (ATTACH-8)."""
    told = finish(start(FULLY_SHARDED, 0, 1, tmp_path))
    assert told["code"] == "watch_sharded_unsupported" and told["sites"][0] == "0.weight"
