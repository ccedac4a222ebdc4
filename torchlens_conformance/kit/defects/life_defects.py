"""Defects of a sink's life: teardown, kills, full disks, other sinks, processes, threads and scale (PROT-6, PROT-10)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from torchlens_conformance.protocol import Point, Refusal

from .base import FILE_NAME, Defect, PlainSink, decode_line, encode_line, planted, read_lines


class TakesAfterClose(PlainSink):
    """Points that come after close are taken and lost."""

    def emit(self, point: Point) -> None:
        """Take anything, once closed."""
        if not self._closed:
            super().emit(point)


class NeedsFlush(PlainSink):
    """What was not flushed is rolled back at close."""

    _flushed = 0

    def sync(self) -> None:
        """Remember what is flushed; when the sink is being closed, cut off the rest."""
        if self._closed:
            os.ftruncate(self._file, self._flushed)
        self._flushed = self._size
        super().sync()


class FlushCloses(PlainSink):
    """A flush closes the sink."""

    def flush(self) -> None:
        """Flush and close at once."""
        super().flush()
        self.close()


class ClosesTwiceBadly(PlainSink):
    """The second close raises."""

    def close(self) -> None:
        """Close a file that is closed."""
        if self._closed:
            os.fstat(-1)
        super().close()


class Buffers(PlainSink):
    """Lines wait in memory until flush or close."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._waiting: list[bytes] = []

    def append(self, line: bytes) -> None:
        """Keep up to 64 lines."""
        self._waiting.append(line)
        if len(self._waiting) == 64:
            self._write_waiting()

    def sync(self) -> None:
        """Write what waits."""
        self._write_waiting()
        super().sync()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            super().append(line)


class TornOnKill(PlainSink):
    """A point is written in pieces, and the reader falls over a torn one."""

    def append(self, line: bytes) -> None:
        """Write the halves of the line apart."""
        half = len(line) // 2
        super().append(line[:half])
        os.sched_yield()
        super().append(line[half:])


def read_whole_lines_only(place: Path) -> list[Point]:
    """A torn line makes the reader fail."""
    return [decode_line(line) for line in read_lines(place)]


class SwallowsErrors(PlainSink):
    """A point that the disk does not take is dropped, and nobody hears of it."""

    def append(self, line: bytes) -> None:
        """Ignore every refusal of the disk."""
        with suppress(Refusal):
            super().append(line)


class LeavesTornLine(PlainSink):
    """A line that was written in part stays, and the next one is glued to it."""

    def append(self, line: bytes) -> None:
        """Write without cutting off what did not go whole."""
        rest = memoryview(line)
        try:
            while rest:
                written = os.write(self._file, rest)
                self._size += written
                rest = rest[written:]
        except OSError as error:
            raise self._write_failed(error) from error


class OpensBlindly(PlainSink):
    """A place that cannot be written to is taken, and the points for it are dropped."""

    def __init__(self, place: Path) -> None:
        try:
            super().__init__(place)
        except Refusal as refusal:
            if refusal.code != "tracker_sink_write_failed":
                raise
            self._file = os.open(os.devnull, os.O_WRONLY)


class SharesItsFile(PlainSink):
    """All sinks of a process write to the file that was opened last."""

    _newest: PlainSink | None = None

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        SharesItsFile._newest = self

    def append(self, line: bytes) -> None:
        """Write to the newest sink's file, as long as that is open."""
        newest = SharesItsFile._newest
        if newest is None or newest._closed:
            super().append(line)
        else:
            PlainSink.append(newest, line)


class ErasesFirst(PlainSink):
    """A second sink on the same place erases what stood there."""

    def __init__(self, place: Path) -> None:
        with suppress(OSError):
            (Path(place) / FILE_NAME).unlink()
        super().__init__(place)


class ForkedChildWrites(PlainSink):
    """A forked child writes into its parent's store."""

    @property
    def forked(self) -> bool:
        """Never notice."""
        return False


class BreaksAfterFork(PlainSink):
    """After a fork the parent's sink takes points and loses them."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._broken = False
        os.register_at_fork(before=self._break)

    def _break(self) -> None:
        self._broken = True

    def append(self, line: bytes) -> None:
        """Drop the line after a fork."""
        if not self._broken:
            super().append(line)


class NotThreadSafe(PlainSink):
    """Threads overwrite each other's line."""

    _line = b""

    def emit(self, point: Point) -> None:
        """Lay the line down, look away, and write what lies there then."""
        self.require_usable()
        self._line = encode_line(point)
        # Gives the other threads a turn at the worst moment.
        time.sleep(0)
        with self._lock:
            self.append(self._line)


class GrowsWithoutBound(PlainSink):
    """Every line is kept in memory until close."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._kept: list[bytearray] = []

    def append(self, line: bytes) -> None:
        """Write the line and keep it, with room for a page."""
        super().append(line)
        self._kept.append(bytearray(4096) + line)


class SlowsDown(PlainSink):
    """Each point costs more than the one before it."""

    _taken = 0

    def append(self, line: bytes) -> None:
        """Count up to the number of points written so far."""
        super().append(line)
        self._taken += 1
        sum(range(self._taken))


LIFE_DEFECTS: tuple[Defect, ...] = (
    planted("takes-after-close", "teardown.closed-refuses", sink=TakesAfterClose),
    planted("needs-flush", "teardown.close-is-enough", sink=NeedsFlush),
    planted("flush-closes", "teardown.flush-before-close", sink=FlushCloses),
    planted("closes-twice-badly", "teardown.close-twice", sink=ClosesTwiceBadly),
    planted("buffers", "survives.kill-between", sink=Buffers),
    planted("torn-on-kill", "survives.kill-inside", sink=TornOnKill, read=read_whole_lines_only),
    planted("swallows-errors", "survives.full-disk", sink=SwallowsErrors),
    planted("leaves-torn-line", "survives.full-disk", sink=LeavesTornLine),
    planted("opens-blindly", "survives.read-only", sink=OpensBlindly),
    planted("shares-its-file", "isolation.two-sinks", sink=SharesItsFile),
    planted("erases-first", "isolation.second-sink", sink=ErasesFirst),
    planted("forked-child-writes", "concurrency.fork", sink=ForkedChildWrites),
    planted("breaks-after-fork", "concurrency.fork", sink=BreaksAfterFork),
    planted("not-thread-safe", "concurrency.threads", sink=NotThreadSafe),
    planted("grows-without-bound", "scale.memory", sink=GrowsWithoutBound),
    planted("slows-down", "scale.cost", sink=SlowsDown),
)
"""Sinks that fail at teardown, under kills, on full disks, beside other sinks, across processes and threads, at scale."""
