"""One plain, correct sink, its reader, and what a planted defect is (PROT-10).

The plain sink is the ground truth of the controls: each planted defect is this sink, or this reader, with one thing
made wrong. It is written for clarity and shares no code with the sinks that the kit certifies.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference_sinks.readers.result import ReadResult
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    Refusal,
    ScalarPoint,
    TextPoint,
    point_to_row,
    row_to_point,
)

from ..subject import Subject
from .consequences import CONSEQUENCES

FILE_NAME = "points.txt"
"""The one file of a plain store."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that a sink, or its reader, can do wrong, as a subject that does it.

    Args:
        id: Stable, in words joined by hyphens.
        idea: What it does wrong, one sentence.
        subject: The subject that does it.
        killed_by: The ids of the checks that it was planted for; all of them fail on it.
        also: The ids of the checks that fail on it as a consequence; no others than these and those above do.
    """

    id: str
    idea: str
    subject: Subject
    killed_by: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def hangs(self) -> bool:
        """Whether the subject hangs, as its id says: each of its processes takes all the time that it is given."""
        return self.id.endswith("-hangs")


def encode_line(point: Point) -> bytes:
    """Return a point as one line of ASCII, with its newline.

    Raises ``point_field_invalid`` for what is no point and ``tracker_value_unsupported`` for an integer of more digits
    than Python converts.
    """
    row = point_to_row(point)
    try:
        return json.dumps(row, allow_nan=False).encode("ascii") + b"\n"
    except ValueError as error:
        raise Refusal(
            "tracker_value_unsupported",
            f"This {type(point).__name__} cannot be written as text: {error}.",
            remedy="Send numbers of fewer digits.",
            point=type(point).__name__,
        ) from error


def decode_line(line: bytes) -> Point:
    """Undo :func:`encode_line`; raises ``ValueError`` for what is no such line."""
    return row_to_point(json.loads(line))


class PlainSink:
    """Write each point as one line, in one appending write, before ``emit_*`` returns.

    Killing the process loses nothing that was acknowledged; a line that the place does not take whole is cut off again
    and refused. Threads may share the sink; a forked child may not. A place that holds a store already is refused.

    Args:
        place: An existing folder.

    Raises ``tracker_sink_path_exists`` and ``tracker_sink_write_failed``; every ``emit_*`` and ``flush`` raises
    ``tracker_sink_closed``, ``tracker_sink_forked`` and ``tracker_sink_write_failed``. Clause: PROT-1, PROT-6, PROT-10.
    """

    def __init__(self, place: Path) -> None:
        self.path = Path(place) / FILE_NAME
        self._owner = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._size = 0
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError as error:
            raise Refusal(
                "tracker_sink_path_exists",
                f"{self.path} already holds data.",
                remedy="Give another folder.",
                path=str(self.path),
            ) from error
        except OSError as error:
            raise self._write_failed(error) from error

    def capabilities(self) -> frozenset[str]:
        """Return all capability words. Clause: PROT-2."""
        return frozenset(CAPABILITY_METHODS)

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Write one scalar."""
        self.emit(point)

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Write one histogram."""
        self.emit(point)

    def emit_text(self, point: TextPoint) -> None:
        """Write one text."""
        self.emit(point)

    def emit_image(self, point: ImagePoint) -> None:
        """Write one image."""
        self.emit(point)

    def emit_graph(self, point: GraphPoint) -> None:
        """Write one graph."""
        self.emit(point)

    def emit_metadata(self, point: MetadataPoint) -> None:
        """Write one mapping of facts about the run."""
        self.emit(point)

    def emit_event(self, point: EventPoint) -> None:
        """Write one event."""
        self.emit(point)

    def emit_embedding(self, point: EmbeddingPoint) -> None:
        """Write one table of vectors."""
        self.emit(point)

    def emit(self, point: Point) -> None:
        """Write one point of any kind."""
        self.require_usable()
        with self._lock:
            # Asked again under the lock: another thread may have closed the file meanwhile.
            self.require_usable()
            self.append(encode_line(point))

    def append(self, line: bytes) -> None:
        """Add one line to the file, whole or not at all; the caller holds the lock."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except BaseException as error:
            os.ftruncate(self._file, self._size)
            if isinstance(error, OSError):
                raise self._write_failed(error) from error
            raise
        self._size += len(line)

    def flush(self) -> None:
        """Block until the disk has every line. Clause: PROT-6."""
        self.require_usable()
        with self._lock:
            self.require_usable()
            self.sync()

    def close(self) -> None:
        """Block until the disk has every line, and close the file; again, or in a forked child, do nothing."""
        if self._closed or self.forked:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self.sync()
            finally:
                os.close(self._file)

    def sync(self) -> None:
        """Hand the file to the disk; the caller holds the lock."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._write_failed(error) from error

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the one that opened the sink."""
        return os.getpid() != self._owner

    def require_usable(self) -> None:
        """Refuse ``tracker_sink_closed`` after close and ``tracker_sink_forked`` in a forked child."""
        if self._closed:
            raise Refusal(
                "tracker_sink_closed",
                "This sink is closed.",
                remedy="Open a new one on another place.",
                path=str(self.path),
            )
        if self.forked:
            raise Refusal(
                "tracker_sink_forked",
                f"This sink belongs to process {self._owner}.",
                remedy="Open another sink in the child, on another place.",
                owner=self._owner,
            )

    def _write_failed(self, error: OSError) -> Refusal:
        return Refusal(
            "tracker_sink_write_failed",
            f"{self.path} cannot be written: {error.strerror}.",
            remedy="Free some space or mend the place; the points before this one are intact.",
            path=str(self.path),
            errno=errno.errorcode.get(error.errno or 0, "unknown"),
        )


def read_lines(place: Path) -> list[bytes]:
    """Return the lines of a plain store, the last one without a newline when it is torn.

    Raises ``reader_path_missing``.
    """
    path = Path(place) / FILE_NAME
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError as error:
        raise Refusal(
            "reader_path_missing",
            f"There is no {path}.",
            remedy="Give the folder that the sink was opened on.",
            path=str(path),
        ) from error


def read_plain(place: Path) -> ReadResult:
    """Return the points of a plain store, in the order they were written, and its torn tail by name.

    Raises ``reader_path_missing`` and ``reader_file_corrupt``.
    """
    lines = read_lines(place)
    torn = None
    if lines and not lines[-1].endswith(b"\n"):
        torn = f"the last line is cut after {len(lines.pop())} bytes"
    points = []
    for number, line in enumerate(lines, start=1):
        try:
            points.append(decode_line(line))
        except ValueError as error:
            raise Refusal(
                "reader_file_corrupt",
                f"Line {number} is no point: {error}.",
                remedy="Restore the file; nothing of it can be trusted.",
                line=number,
            ) from error
    return ReadResult(points=tuple(points), torn=torn, reader="plain")


def planted(
    identity: str,
    *killed_by: str,
    sink: Callable[[Path], Any] = PlainSink,
    read: Callable[[Path], Any] = read_plain,
    capabilities: Iterable[str] | None = None,
) -> Defect:
    """Return a defect whose idea is the first line of what is wrong: the sink, or the reader of a plain sink.

    Args:
        identity: The defect's id.
        *killed_by: The ids of the checks that it is planted for.
        sink: Opens the sink.
        read: Reads it back.
        capabilities: What the subject declares; the sink's own words when left out.
    """
    wrong = read if sink is PlainSink else sink
    idea = (wrong.__doc__ or "").strip().splitlines()[0]
    subject = Subject(name=identity, open=sink, read=read, capabilities=capabilities)
    return Defect(identity, idea, subject, killed_by, CONSEQUENCES.get(identity, ()))
