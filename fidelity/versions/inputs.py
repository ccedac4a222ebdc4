"""What is handed to ``fidelity merge``: measured files, tables of versions, tox's report, a list of jobs (FID-3)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Refusal

from ..routes import get_route
from ..trackers import routes_of
from .columns import Column
from .matrix import MatrixJob, failed_jobs, read_jobs
from .merge import Expected
from .store import load_columns


@dataclass(frozen=True, slots=True)
class Inputs:
    """What stands in the files.

    Args:
        columns: The columns of measured files and of tables.
        expected: The versions that were to be measured.
        refused: Why each file that cannot be read was left out.
    """

    columns: Sequence[Column]
    expected: Sequence[Expected]
    refused: Mapping[Path, Refusal]


def read_inputs(paths: Iterable[Path]) -> Inputs:
    """Read every file by what it is; one that cannot be read does not keep the others from being read.

    A file of ``tox --result-json`` and one of ``fidelity matrix`` hold no columns, but name what was to be measured;
    the former also says why an installation failed.

    Raises the refusal of the first file (``fidelity_result_invalid`` as a rule) when none can be read.
    """
    columns: list[Column] = []
    reasons: dict[MatrixJob, str] = {}
    refused: dict[Path, Refusal] = {}
    files = list(dict.fromkeys(paths))
    for path in files:
        try:
            document = _jobs_document(path)
            if document is None:
                columns += load_columns(path)
                continue
            for job, reason in _jobs(path, document).items():
                reasons[job] = reason or reasons.get(job, "")
        except Refusal as refusal:
            refused[path] = refusal
    if refused and len(refused) == len(files):
        raise refused[files[0]]
    broken = {path.stem for path in refused}
    return Inputs(columns, [_expected(job, reason, broken) for job, reason in reasons.items()], refused)


def _jobs(path: Path, document: Mapping[str, Any]) -> Mapping[MatrixJob, str]:
    """The jobs that a file names, each with the reason why it failed, empty when it did not."""
    try:
        jobs = failed_jobs(document) if "testenvs" in document else dict.fromkeys(read_jobs(document), "")
    except (AttributeError, KeyError, TypeError) as error:
        raise Refusal(
            "fidelity_result_invalid",
            f"This is no report of tox and no list of jobs: {error!r}.",
            remedy="Make one with `tox --result-json FILE` or `torchlens-conformance fidelity matrix`.",
            path=str(path),
        ) from error
    for job in jobs:
        routes_of(job.tracker)
    return jobs


def _jobs_document(path: Path) -> dict[str, Any] | None:
    """The document of a file that names jobs, None for every other file (whose faults its own reader tells)."""
    try:
        text = path.read_text(encoding="utf-8")
        # Measured files are not read twice.
        document = json.loads(text) if '"testenvs"' in text or '"include"' in text else None
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and ("testenvs" in document or "include" in document) else None


def _expected(job: MatrixJob, reason: str, broken: Collection[str]) -> Expected:
    if not reason and job.environment in broken:
        reason = f"the environment {job.environment} left a file that cannot be read"
    return Expected(job.environment, job.tracker, job.version, _titles(routes_of(job.tracker)), reason or None)


def _titles(routes: Sequence[str]) -> dict[str, str]:
    return {route: get_route(route).title for route in routes}
