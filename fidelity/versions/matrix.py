"""The version matrix as tox knows it: which environments there are, and which version each one asks for (FID-3)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Refusal

LABEL = "versions"
"""The label of the environments in tox.ini."""

_ENVIRONMENT = re.compile(r"^fidelity-([a-z]+)[0-9]+$")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)$")
_TRACKERS = {"tb": "tensorboard", "comet": "comet_ml", "tbx": "tensorboardX"}
"""The names of environments that are not their tracker's."""


@dataclass(frozen=True, slots=True)
class MatrixJob:
    """One environment of the matrix.

    Args:
        environment: The tox environment, such as ``fidelity-wandb0282``.
        tracker: The distribution that it measures.
        version: The version that it asks for.
    """

    environment: str
    tracker: str
    version: str


def matrix_jobs(folder: Path) -> list[MatrixJob]:
    """Ask tox for the environments with the label ``versions`` and for what each one installs.

    Args:
        folder: The top of a checkout.

    Raises ``fidelity_matrix_unreadable``.
    """
    listed = _tox(folder, "list", "-m", LABEL, "--no-desc").split()
    names = [name for name in listed if _ENVIRONMENT.match(name)]
    if not names:
        raise _unreadable("tox lists no environment of that label")
    return parse_dependencies(_tox(folder, "config", "-e", ",".join(names), "-k", "deps"))


def parse_dependencies(text: str) -> list[MatrixJob]:
    """Read what ``tox config -k deps`` prints: a section for each environment, a requirement on each line.

    Raises ``fidelity_matrix_unreadable`` when an environment pins no version of its tracker.
    """
    requirements: dict[str, list[str]] = {}
    environment = ""
    for line in text.splitlines():
        if line.startswith("[testenv:"):
            environment = line.removeprefix("[testenv:").rstrip("]")
            requirements[environment] = []
        elif environment:
            requirements[environment].append(line.removeprefix("deps =").strip())
    jobs = [_job(name, found) for name, found in requirements.items()]
    nameless = [name for name, job in zip(requirements, jobs) if job is None]
    if nameless:
        raise _unreadable(f"no version of its tracker is pinned in {', '.join(nameless)}")
    return [job for job in jobs if job is not None]


def failed_jobs(tox_result: Mapping[str, Any]) -> dict[MatrixJob, str]:
    """Return the matrix environments in a file of ``tox --result-json``, and why each failed (empty: it did not)."""
    jobs = {}
    for name, environment in tox_result["testenvs"].items():
        words = [word for run in environment.get("setup", ()) for word in run["command"]]
        job = _job(name, words)
        if job is not None:
            jobs[job] = _failure(environment)
    return jobs


def jobs_json(jobs: Iterable[MatrixJob]) -> str:
    """Return the jobs as one line of JSON, in the form that a matrix of GitHub Actions takes (``include``)."""
    return json.dumps({"include": [asdict(job) for job in jobs]}, separators=(",", ":"))


def _job(environment: str, requirements: Iterable[str]) -> MatrixJob | None:
    named = _ENVIRONMENT.match(environment)
    if named is None:
        return None
    tracker = _TRACKERS.get(named[1], named[1])
    pins = [pin for pin in map(_PIN.match, requirements) if pin is not None and pin[1] == tracker]
    return MatrixJob(environment, tracker, pins[0][2]) if pins else None


def _failure(environment: Mapping[str, Any]) -> str:
    for step, what in (("setup", "the installation failed"), ("test", "the measurement failed")):
        for run in environment.get(step, ()):
            if run["retcode"]:
                said = " ".join(f"{run['output']} {run['err']}".split())
                return f"{what}: {said[-600:]}"
    return ""


def _tox(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "tox", *arguments]
    # What an outer tox has set for itself is not for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOX_")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise _unreadable(said[-1] if said else f"tox ended with {done.returncode}")
    return done.stdout


def _unreadable(reason: str) -> Refusal:
    return Refusal(
        "fidelity_matrix_unreadable",
        f"The version matrix cannot be read: {reason}.",
        remedy="Run this at the top of a checkout, with tox installed beside this package.",
    )


def read_jobs(document: Mapping[str, Any]) -> Sequence[MatrixJob]:
    """Return the jobs of a document that :func:`jobs_json` wrote. Raises ``KeyError`` and ``TypeError`` for others."""
    jobs = [MatrixJob(**job) for job in document["include"]]
    if not all(isinstance(text, str) for job in jobs for text in asdict(job).values()):
        raise TypeError("environment, tracker and version of a job are texts")
    return jobs
