"""Correct sinks that leave the storing to something else: a database, a thread, a process."""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

from torchlens_conformance.protocol import Point

from .base import CorrectSink, WholeFile, pack, unpack


class SqliteSink(CorrectSink):
    """A database with one transaction a point."""

    journal = "delete"

    def start(self, place: Path) -> None:
        """Make the store."""
        path = place / "points.db"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o666))
        self.base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.base.execute(f"pragma journal_mode = {self.journal}")
        # What a kill must not lose is with the system at commit; only a power cut asks for more, and flush sees to it.
        self.base.execute("pragma synchronous = off")
        self.base.execute("create table points (number integer primary key, row blob)")

    def store(self, point: Point) -> None:
        """Store one point."""
        self.base.execute("insert into points (row) values (?)", (pack(point),))

    def finish(self) -> None:
        """Finish the store."""
        self.base.close()


class WriteAheadSink(SqliteSink):
    """A database with a write-ahead log."""

    journal = "wal"


def read_sqlite(place: Path) -> list[Point]:
    """Read the table by number."""
    if not (place / "points.db").exists():
        raise FileNotFoundError(place / "points.db")
    with contextlib.closing(sqlite3.connect(place / "points.db")) as base:
        return [unpack(row) for (row,) in base.execute("select row from points order by number")]


class ThreadedSink(CorrectSink):
    """A thread writes; a call returns when its line is written."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.log")
        self.work: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _write(self) -> None:
        while (line := self.work.get()) is not None:
            try:
                self.file.append(line)
            except OSError as error:
                self.done.put(error)
            else:
                self.done.put(None)

    def store(self, point: Point) -> None:
        """Store one point."""
        self.work.put(pack(point) + b"\n")
        error = self.done.get()
        if error is not None:
            raise error

    def settle(self) -> None:
        """Hand the store to the disk."""
        self.file.sync()

    def finish(self) -> None:
        """Finish the store."""
        self.work.put(None)
        self.thread.join()
        self.file.close()


_WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
size = 0
os.write(1, b"0\\n")
for line in sys.stdin.buffer:
    done = 0
    try:
        while done < len(line):
            done += os.pwrite(file, line[done:], size + done)
        size += done
        os.write(1, b"0\\n")
    except OSError as error:
        os.ftruncate(file, size)
        os.write(1, b"%d\\n" % error.errno)
"""


class ProcessSink(CorrectSink):
    """Another process writes; a call returns when that has acknowledged the line."""

    def start(self, place: Path) -> None:
        """Make the store."""
        if (place / "points.log").exists():
            raise FileExistsError(place)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WRITER, str(place / "points.log")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._wait("cannot be opened")

    def _wait(self, what: str) -> None:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if answer != b"0\n":
            raise OSError(int(answer or b"5"), what)

    def store(self, point: Point) -> None:
        """Store one point."""
        assert self.process.stdin is not None
        rest = memoryview(pack(point) + b"\n")
        while rest:
            rest = rest[self.process.stdin.write(rest) or 0 :]
        self._wait("the line was not taken")

    def finish(self) -> None:
        """Finish the store."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
