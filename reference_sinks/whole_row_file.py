"""A locked file of lines to which only whole lines are added (JSONL-2, PROT-10)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from torchlens_conformance.protocol import Refusal

_BLOCK = 64 * 1024


class WholeRowFile:
    """The descriptor of a file that this process alone writes to, by the lock that it holds.

    A line is handed to the system in one unbuffered, appending write. When the system takes only a part of it, the
    rest is tried once more, and if that fails the part is cut off again. Other than regular files (a device, a pipe)
    are written to as they are: nothing can be cut there, and nothing is locked.

    Not safe for use by two threads at a time; the sink holds a lock around it.

    Args:
        path: The file; it is made if missing, and so are the folders above it.

    Attributes:
        path: The file.
        rows: How many rows the file holds; the sink sets it after a resume.

    Raises ``tracker_sink_path_locked`` and ``tracker_sink_write_failed``. Clause: JSONL-2, PROT-10.
    """

    __slots__ = ("_descriptor", "_regular", "_torn", "path", "rows")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._torn = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor, self._regular = _open_locked(path)
        except BlockingIOError as error:
            raise Refusal(
                "tracker_sink_path_locked",
                f"Another writer holds {path}.",
                remedy="Close the other sink first, or give this one a path of its own.",
                path=str(path),
            ) from error
        except OSError as error:
            raise self._refusal(error, row=0) from error

    @property
    def descriptor(self) -> int:
        """The file descriptor; -1 after :meth:`release`."""
        return self._descriptor

    @property
    def size(self) -> int:
        """Bytes in the file; 0 for a device."""
        return os.fstat(self._descriptor).st_size

    def cut(self, size: int) -> None:
        """Cut the file to its first ``size`` bytes. Raises ``tracker_sink_write_failed``."""
        if not self._regular:
            return
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._refusal(error, row=self.rows + 1) from error

    def append(self, row: bytes) -> None:
        """Add one line, whole or not at all. Raises ``tracker_sink_write_failed``. Clause: JSONL-2."""
        if self._torn:
            self._cut_torn_row()
        try:
            written = os.write(self._descriptor, row)
            if written != len(row):
                self._write_rest(memoryview(row)[written:])
        except BaseException as error:
            self._torn = True
            # What went wrong first is what the caller must hear of; a cut that fails is tried again later.
            with contextlib.suppress(Refusal):
                self._cut_torn_row()
            if isinstance(error, OSError):
                raise self._refusal(error, row=self.rows + 1) from error
            raise
        self.rows += 1

    def sync(self) -> None:
        """Block until the disk has every line. Raises ``tracker_sink_write_failed``."""
        if not self._regular:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._refusal(error, row=self.rows) from error

    def release(self) -> None:
        """Give up the lock and the descriptor; again, do nothing."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        # A child that was started by other means than os.fork may hold the same lock: closing is not enough.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def abandon(self) -> None:
        """Close the descriptor and leave the lock to the parent process, which shares it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write_rest(self, rest: memoryview) -> None:
        # Either this completes the line (it was longer than one write can be, or a signal came in between), or the
        # system says why it cannot.
        while rest:
            written = os.write(self._descriptor, rest)
            if written == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rest = rest[written:]

    def _cut_torn_row(self) -> None:
        if self._regular:
            self.cut(_end_of_last_line(self._descriptor))
        self._torn = False

    def _refusal(self, error: OSError, *, row: int) -> Refusal:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        return Refusal(
            "tracker_sink_write_failed",
            f"{self.path} did not take row {row}: {error.strerror or error}.",
            remedy="Free some space or mend the place, then go on; the rows before this one are intact.",
            path=str(self.path),
            errno=name,
            row=row,
        )


def _open_locked(path: Path) -> tuple[int, bool]:
    """Open and lock ``path``; return the descriptor and whether it is a regular file.

    Raises ``BlockingIOError`` when another writer holds it.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return descriptor, False
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, another process may have removed or replaced the file.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(status, os.stat(path)):
                    return descriptor, True
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _end_of_last_line(descriptor: int) -> int:
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _BLOCK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
