"""Reading JSONL files, those of JSONLSink and those of torchlens 2.36 (JSONL-1..3)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from torchlens_conformance.protocol import (
    DEFAULT_DESCRIPTOR,
    ROW_KINDS,
    WANDB_SAFE_DESCRIPTOR,
    Point,
    Refusal,
    row_to_point,
)

from ..jsonl_rows import HEADER, VERSION
from .damage import Damage
from .jsonl_rows import LaterVersion, RowScan
from .refusing import damage_refusal, empty_refusal, require_present, torn_text
from .result import ReadResult, Unplaced

READER = "read_jsonl"

_TORCHLENS_HEADER = b'{"format": "torchlens.trackers.jsonl.v1", "version": 1}\n'
_GRIDS = {descriptor.edges: descriptor.edges for descriptor in (DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR)}


def read_jsonl(path: str | os.PathLike[str]) -> ReadResult:
    """Read every whole row of a JSONL file, in stored order, also while a sink still writes to it.

    A row is whole when its line ends with a newline: the writer writes both at once, so a line without one was never
    acknowledged, even if it looks complete. A damaged last row is named in ``torn`` (byte, row number, length) and
    everything before it is read. Empty lines and carriage returns before the newline are passed over and noted.

    ``closed`` is True when the last segment ends with its footer and nothing stands behind it, else False. Notes tell
    the segments of a resumed file, which of them were left open, and which follow torchlens 2.36, whose bare ``NaN``,
    ``Infinity`` and ``-Infinity`` are read as the floats they mean. ``unplaced`` has the rows of an unknown kind, with
    the row as content, and those of a known kind that make no valid point, with ``row`` and ``error``.

    Args:
        path: The file.

    Raises ``reader_path_missing``, ``reader_file_empty``, ``reader_file_foreign`` (the first row is no header, or the
    path is no regular file), ``reader_file_truncated`` (cut inside the header), ``reader_file_corrupt`` (a damaged row
    that is not the last, or a row behind a footer), each with ``offset``, ``line`` and ``points_before`` where that
    has a meaning, and ``reader_version_unsupported``.

    Clause: JSONL-1, JSONL-2, JSONL-3.
    """
    place = Path(path)
    require_present(place, reader=READER)
    if not place.is_file():
        raise damage_refusal(Damage("foreign", 0, "this is no regular file"), place, reader=READER, points_before=0)
    harvest = _Harvest()
    with place.open("rb") as stream:
        scan = RowScan(stream)
        with _refusing(place, scan, harvest.points):
            for row in scan:
                if row.header:
                    harvest.open_segment(row.number, row.content)
                else:
                    harvest.take(row.number, row.offset, row.content)
        torn = _torn(scan, place, stream)
    return ReadResult(
        tuple(harvest.points),
        tuple(harvest.unplaced),
        torn=torn,
        closed=harvest.segments[-1].closed and torn is None,
        reader=READER,
        notes=tuple(harvest.notes(scan)),
    )


@dataclass(frozen=True, slots=True)
class Survey:
    """What a writer must know of a file that it continues.

    Args:
        rows: Lines up to the last whole row.
        last_step: The largest step of any row, or -1.
        whole_bytes: Where the last whole row ends; what stands behind it is torn.
    """

    rows: int
    last_step: int
    whole_bytes: int


def survey(path: Path, descriptor: int) -> Survey:
    """Look through a JSONL file that is about to be continued.

    A file that holds nothing but the beginning of a header that this format's writers write counts as torn from its
    first byte on: its writer died while it made the file.

    Args:
        path: The file, for refusals.
        descriptor: Open for reading; it is left open.

    Raises the codes of :func:`read_jsonl`. Clause: JSONL-4, PROT-11.
    """
    rows, last_step = 0, -1
    with open(descriptor, "rb", closefd=False) as stream:
        stream.seek(0)
        start = stream.read(len(HEADER) + len(_TORCHLENS_HEADER))
        if HEADER[:-1].startswith(start) or _TORCHLENS_HEADER[:-1].startswith(start):
            return Survey(0, -1, 0)
        stream.seek(0)
        scan = RowScan(stream)
        with _refusing(path, scan, ()):
            for row in scan:
                rows, step = row.number, row.content.get("step")
                if type(step) is int and step > last_step:
                    last_step = step
    return Survey(rows, last_step, scan.end)


@dataclass(slots=True)
class _Segment:
    row: int
    first_point: int
    names_encoding: bool
    closed: bool = False


@dataclass(slots=True)
class _Harvest:
    """What was read so far."""

    points: list[Point] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    segments: list[_Segment] = field(default_factory=list)

    def open_segment(self, number: int, header: dict[str, Any]) -> None:
        self.segments.append(_Segment(number, len(self.points), "nonfinite" in header))

    def take(self, number: int, offset: int, content: dict[str, Any]) -> None:
        kind = content.get("kind")
        if kind == "closed":
            self.segments[-1].closed = True
            return
        where = f"row {number} at byte {offset}"
        if kind not in ROW_KINDS:
            reason = f"a row of the unknown kind {kind!r}" if "kind" in content else "a row without a kind"
            self.unplaced.append(Unplaced(where, reason, content))
            return
        try:
            self.points.append(row_to_point(_with_shared_edges(content)))
        except (ValueError, RecursionError) as error:
            self.unplaced.append(
                Unplaced(where, f"a {kind} row that makes no point", {"row": content, "error": str(error)})
            )

    def notes(self, scan: RowScan) -> Iterator[str]:
        for index, segment in enumerate(self.segments, 1):
            if len(self.segments) > 1:
                open_end = "" if segment.closed or index == len(self.segments) else "; it was left open"
                yield f"segment {index} starts in row {segment.row}, before point {segment.first_point}{open_end}"
            if not segment.names_encoding:
                yield f"segment {index} names no encoding of NaN and infinities; bare tokens are read (torchlens 2.36)"
        if scan.empty_lines:
            yield f"empty lines were passed over: {scan.empty_lines}"
        if scan.carriage_returns:
            yield "lines end with a carriage return and a newline"


def _with_shared_edges(row: dict[str, Any]) -> dict[str, Any]:
    # A point over a known grid then shares the grid's own tuple: a fifth of the memory, and no second check.
    if row["kind"] == "histogram" and isinstance(row.get("edges"), list):
        with suppress(TypeError):  # something unhashable stands among them; the point says so
            return {**row, "edges": _GRIDS.get(tuple(row["edges"]), row["edges"])}
    return row


def _torn(scan: RowScan, path: Path, stream: BinaryIO) -> str | None:
    if scan.torn is None:
        return None
    return torn_text(scan.torn, path, size=stream.tell())


@contextmanager
def _refusing(path: Path, scan: RowScan, points: list[Point] | tuple[()]) -> Iterator[None]:
    """Turn what a scan raises, and a scan without rows, into the refusals of readers."""
    try:
        yield
    except Damage as damage:
        refusal = damage_refusal(damage, path, reader=READER, points_before=len(points))
        if damage.kind == "truncated":
            refusal.remedy = "There is nothing before the cut; write the file again."
        refusal.fields["line"] = scan.number
        raise refusal from None
    except LaterVersion as later:
        raise Refusal(
            "reader_version_unsupported",
            f"{path.name} is of a later version of its format: {later}.",
            remedy=f"Read it with a later release; this one knows version {VERSION}.",
            path=str(path),
            reader=READER,
            line=scan.number,
            version=str(later),
        ) from None
    if not scan.end:
        raise empty_refusal(path, "the file holds no row", reader=READER)
