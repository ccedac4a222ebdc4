"""What all correct sinks share: their life, their lock and their typed refusals; how they store is their own."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import CAPABILITY_METHODS, Point, Refusal, point_to_row, row_to_point

FAILURES = (OSError, sqlite3.Error)
"""What a store raises when it does not take something."""


def pack(point: Point) -> bytes:
    """Return a point as bytes without a line end."""
    return json.dumps(point_to_row(point), allow_nan=False).encode("ascii")


def unpack(content: bytes | str) -> Point:
    """Undo :func:`pack`."""
    return row_to_point(json.loads(content))


class CorrectSink:
    """A sink whose store is the business of the classes below it.

    Args:
        place: An existing folder.
    """

    def __init__(self, place: Path) -> None:
        self._owner = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        try:
            with typed_failures():
                self.start(Path(place))
        except FileExistsError as error:
            raise Refusal(
                "tracker_sink_path_exists", f"{place} holds a store.", remedy="Give another place.", path=str(place)
            ) from error

    def start(self, place: Path) -> None:
        """Make the store; raise ``FileExistsError`` when there is one."""
        raise NotImplementedError

    def store(self, point: Point) -> None:
        """Store one point, so that a killed process does not lose it; called by one thread at a time."""
        raise NotImplementedError

    def settle(self) -> None:
        """Hand the store to the disk."""

    def finish(self) -> None:
        """Finish the store."""

    def capabilities(self) -> Any:
        """Return all capability words."""
        return frozenset(CAPABILITY_METHODS)

    def emit(self, point: Point) -> None:
        """Store one point."""
        self.require_usable()
        with self._lock:
            self.require_usable()
            with typed_failures():
                self.store(point)

    emit_scalar: Callable[..., None]
    emit_histogram: Callable[..., None]
    emit_text: Callable[..., None]
    emit_image: Callable[..., None]
    emit_graph: Callable[..., None]
    emit_metadata: Callable[..., None]
    emit_event: Callable[..., None]
    emit_embedding: Callable[..., None]

    def flush(self) -> None:
        """Settle what was stored."""
        self.require_usable()
        with self._lock, typed_failures():
            self.settle()

    def close(self) -> None:
        """Finish; again, or in a forked child, do nothing."""
        with self._lock:
            if self._closed or os.getpid() != self._owner:
                return
            self._closed = True
            with typed_failures():
                self.finish()

    def require_usable(self) -> None:
        """Refuse when closed, and in a forked child."""
        if self._closed:
            raise Refusal("tracker_sink_closed", "It is closed.", remedy="Open another.", sink=type(self).__name__)
        if os.getpid() != self._owner:
            raise Refusal("tracker_sink_forked", "A child's sink.", remedy="Open another.", sink=type(self).__name__)


def _emit(self: CorrectSink, point: Any) -> None:
    """Store one point."""
    self.emit(point)


for _method in CAPABILITY_METHODS.values():
    setattr(CorrectSink, _method, _emit)


@contextmanager
def typed_failures() -> Iterator[None]:
    """Turn what a store raises into a refusal; that a store exists already passes."""
    try:
        yield
    except FileExistsError:
        raise
    except FAILURES as error:
        name = errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)
        raise Refusal(
            "tracker_sink_write_failed", f"The store failed: {error}.", remedy="Mend the place.", errno=name
        ) from error


class WholeFile:
    """A new file to which pieces are added whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        self.size = 0

    def append(self, piece: bytes) -> int:
        """Add a piece; return where it starts."""
        start = self.size
        self.write_at(start, piece)
        self.size = start + len(piece)
        return start

    def write_at(self, start: int, piece: bytes) -> None:
        """Write a piece; what was there behind ``start`` is cut off when that fails."""
        done = 0
        try:
            while done < len(piece):
                done += os.pwrite(self.descriptor, memoryview(piece)[done:], start + done)
        except OSError:
            os.ftruncate(self.descriptor, start)
            raise

    def sync(self) -> None:
        """Hand the file to the disk."""
        os.fsync(self.descriptor)

    def close(self) -> None:
        """Hand the file to the disk and close it."""
        try:
            self.sync()
        finally:
            os.close(self.descriptor)
