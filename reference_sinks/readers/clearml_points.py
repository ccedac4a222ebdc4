"""The artifacts in which ClearMLSink keeps histograms and texts: whole files in the format of JSONLSink (CLEARML-1)."""

from __future__ import annotations

from pathlib import PurePosixPath

from torchlens_conformance.protocol import Point, row_to_point

from ..clearml_names import ARTIFACT_PREFIX, ARTIFACT_SUFFIX
from .clearml_session import Session
from .damage import Damage
from .jsonl_rows import LaterVersion, RowScan
from .result import Unplaced


def is_points_artifact(file: str) -> bool:
    """Whether a path inside a session is that of an artifact of ClearMLSink."""
    name = PurePosixPath(file).name
    return name.startswith(ARTIFACT_PREFIX) and name.endswith(ARTIFACT_SUFFIX)


def points_artifacts(session: Session) -> list[str]:
    """Return the paths of all artifacts of ClearMLSink, in the order in which they were written.

    They are found by their files: ClearML rewrites its list of artifacts in place, so that a process that dies in
    between leaves none of it.
    """
    found = [file for file in session.files("data") if is_points_artifact(file)]
    return sorted(found, key=lambda file: PurePosixPath(file).name)


def points_of_artifact(name: str, content: bytes, points: list[Point], unplaced: list[Unplaced]) -> None:
    """Append the points of one artifact; a row that makes none is left unplaced.

    Raises :class:`~reference_sinks.readers.damage.Damage`: ``truncated`` for a file without its end, behind the rows
    that are whole; ``foreign`` or ``corrupt``.
    """
    scan, closed = RowScan(content.splitlines(keepends=True)), False
    try:
        for row in scan:
            closed = row.content.get("kind") == "closed"
            if row.header or closed:
                continue
            try:
                points.append(row_to_point(row.content))
            except (ValueError, RecursionError) as error:
                where = f"{name} row {row.number}"
                unplaced.append(Unplaced(where, "a row that no point can hold", {**row.content, "why": str(error)}))
    except LaterVersion as later:
        raise Damage("corrupt", 0, f"it is of a later version of its format: {later}") from None
    if scan.torn is not None:
        raise scan.torn
    if not closed:
        raise Damage("truncated", scan.end, "the file has no end")
