"""The ground floor is light: it imports quickly, and nothing but the standard library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchlens_conformance

_PROGRAM = """
import json, sys, time
before = set(sys.modules)
start = time.process_time()
import torchlens_conformance.protocol
import torchlens_conformance.protocol.compare
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted(set(sys.modules) - before)}))
"""

TOO_HEAVY = {
    "torch",
    "numpy",
    "wandb",
    "clearml",
    "tensorboard",
    "mlflow",
    "comet_ml",
    "numba",
    "orjson",
    "click",
    "rich",
}


def fresh_import() -> tuple[float, list[str]]:
    """Return the processor seconds of an import in a fresh interpreter, and the modules that it loads."""
    root = str(Path(torchlens_conformance.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    finished = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0, finished.stderr
    told = json.loads(finished.stdout)
    return told["seconds"], told["modules"]


@pytest.fixture(scope="module")
def modules() -> list[str]:
    """Return the modules that a fresh import loads."""
    return fresh_import()[1]


def test_only_the_standard_library_is_imported(modules: list[str]) -> None:
    """Points, sinks' contracts and comparison need no torch, no numpy and no tracker (POINT-2, PROT-1)."""
    assert "torchlens_conformance.protocol.compare" in modules
    roots = {module.partition(".")[0] for module in modules}
    assert not roots & TOO_HEAVY
    assert roots - {"torchlens_conformance"} <= sys.stdlib_module_names


def test_no_other_room_is_imported(modules: list[str]) -> None:
    """The protocol imports nothing of the packages above it (PROT-1)."""
    ours = {module for module in modules if module.startswith(("torchlens_conformance", "reference_sinks", "fidelity"))}
    allowed = ("torchlens_conformance.protocol.", "torchlens_conformance.protocol")
    assert {module for module in ours if not module.startswith(allowed)} == {"torchlens_conformance"}


def test_the_import_is_quick() -> None:
    """An import takes some 50 ms of processor time; ten times that is an import that does work (PROT-1)."""
    times = [fresh_import()[0] for _ in range(3)]
    assert min(times) < 0.5, f"seconds: {times}"
