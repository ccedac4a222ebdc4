"""What is handed to ``fidelity merge``: measured files, tables of versions, tox's report, a list of jobs (FID-3)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Refusal

from ..routes import get_route
from ..trackers import routes_of
from .columns import Column
from .matrix import MatrixJob, failed_jobs, read_jobs
from .merge import Expected
from .store import load_columns


def read_inputs(paths: Iterable[Path]) -> tuple[list[Column], list[Expected]]:
    """Read every file by what it is, and return the columns and the versions that were to be measured.

    A file of ``tox --result-json`` and one of ``fidelity matrix`` hold no columns, but name what was to be measured;
    the former also says why an installation failed.

    Raises ``fidelity_result_invalid`` for any other file.
    """
    columns: list[Column] = []
    reasons: dict[MatrixJob, str] = {}
    for path in paths:
        document = _jobs_document(path)
        if document is None:
            columns += load_columns(path)
            continue
        try:
            found = failed_jobs(document) if "testenvs" in document else dict.fromkeys(read_jobs(document), "")
        except (AttributeError, KeyError, TypeError) as error:
            raise Refusal(
                "fidelity_result_invalid",
                f"This is no report of tox and no list of jobs: {error!r}.",
                remedy="Make one with `tox --result-json FILE` or `torchlens-conformance fidelity matrix`.",
                path=str(path),
            ) from error
        for job, reason in found.items():
            reasons[job] = reason or reasons.get(job, "")
    return columns, [_expected(job, reason) for job, reason in reasons.items()]


def _jobs_document(path: Path) -> dict[str, Any] | None:
    """The document of a file that names jobs, None for every other file (whose faults its own reader tells)."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and ("testenvs" in document or "include" in document) else None


def _expected(job: MatrixJob, reason: str) -> Expected:
    return Expected(job.environment, job.tracker, job.version, _titles(routes_of(job.tracker)), reason or None)


def _titles(routes: Sequence[str]) -> dict[str, str]:
    return {route: get_route(route).title for route in routes}
