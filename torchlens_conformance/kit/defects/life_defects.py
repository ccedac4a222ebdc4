"""Defects of a sink's life: teardown, kills, disks, other sinks, processes, threads, scale (PROT-6, PROT-10)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from reference_sinks.readers.result import ReadResult
from torchlens_conformance.protocol import Point, Refusal

from .base import FILE_NAME, Defect, PlainSink, decode_line, encode_line, planted, read_lines, read_plain


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
    """The second close is refused."""

    def close(self) -> None:
        """Refuse what a closed sink refuses."""
        self.require_usable()
        super().close()


class FlushDoesNothing(PlainSink):
    """Lines wait in memory, and a flush leaves them there."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._waiting: list[bytes] = []

    def append(self, line: bytes) -> None:
        """Keep more lines than are sent before a kill, however late that comes."""
        self._waiting.append(line)
        if len(self._waiting) == 4096:
            self._write_waiting()

    def sync(self) -> None:
        """Write what waits when the sink is being closed."""
        if self._closed:
            self._write_waiting()
            super().sync()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            super().append(line)


class TornOnKill(PlainSink):
    """A long line is written in two pieces, and the reader falls over a torn one."""

    _torn = 0

    def append(self, line: bytes) -> None:
        """Write the halves of the first long lines apart, with time between them to be killed in."""
        self._torn += len(line) >= _LONG
        if len(line) < _LONG or self._torn > 3:
            super().append(line)
            return
        before, half = self._size, len(line) // 2
        super().append(line[:half])
        time.sleep(0.5)
        try:
            super().append(line[half:])
        except Refusal:
            os.ftruncate(self._file, before)
            self._size = before
            raise


_LONG = 4096
"""Bytes from which a line counts as long."""


def read_whole_lines_only(place: Path) -> list[Point]:
    """A torn line makes the reader fail."""
    return [decode_line(line) for line in read_lines(place)]


class MarksItsEnd(PlainSink):
    """A plain sink that makes a second, empty file at close."""

    def close(self) -> None:
        """Close, and say so in the place."""
        first = not self._closed and not self.forked
        super().close()
        if first:
            (self.path.parent / _END).touch()


_END = "closed"


def read_once_closed(place: Path) -> ReadResult:
    """The reader waits for the end of a store whose writer was killed."""
    while not (Path(place) / _END).exists():
        time.sleep(0.1)
    return read_plain(place)


def read_strictly_once_closed(place: Path) -> ReadResult | list[Point]:
    """Return the points; of a store that says it is closed every line must be whole."""
    closed = (Path(place) / _END).exists()
    return read_whole_lines_only(place) if closed else read_plain(place)


class SwallowsErrors(PlainSink):
    """A point that the disk does not take is dropped, and nobody hears of it."""

    def append(self, line: bytes) -> None:
        """Ignore every refusal of the disk."""
        with suppress(Refusal):
            super().append(line)


class LeavesTornLine(MarksItsEnd):
    """A line that the disk took in part stays, and the reader falls over it."""

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


class DropsAfterFullDisk(PlainSink):
    """After a write that failed, all later points are dropped, and nobody hears of it."""

    _gave_up = False

    def append(self, line: bytes) -> None:
        """Write until a write fails; then do nothing."""
        if self._gave_up:
            return
        try:
            super().append(line)
        except Refusal:
            self._gave_up = True
            raise


class RemembersFullDisk(PlainSink):
    """What would not have fitted when the disk was full is dropped when there is room again, and nobody hears of it."""

    _out_of_reach = 1 << 62

    def append(self, line: bytes) -> None:
        """Write, and take back what reaches a size that the disk once did not allow."""
        before = self._size
        try:
            super().append(line)
        except Refusal:
            self._out_of_reach = min(self._out_of_reach, before + len(line))
            raise
        if self._size >= self._out_of_reach:
            os.ftruncate(self._file, before)
            self._size = before


class OpensBlindly(PlainSink):
    """A place that cannot be written to is taken, and the points for it are dropped."""

    _blind = False

    def __init__(self, place: Path) -> None:
        try:
            super().__init__(place)
        except Refusal as refusal:
            if refusal.code != "tracker_sink_write_failed":
                raise
            self._file = os.open(os.devnull, os.O_WRONLY)
            self._blind = True

    def sync(self) -> None:
        """Wait for the disk where there is one."""
        if not self._blind:
            super().sync()


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
        """Count up to a number that grows with the fourth power of what was written: cheap at first, dear at last."""
        super().append(line)
        self._taken += 1
        sum(range(40_000 * min(self._taken, 20_000) ** 4 // 20_000**4))


LIFE_DEFECTS: tuple[Defect, ...] = (
    planted("takes-after-close", "teardown.closed-refuses", sink=TakesAfterClose),
    planted("needs-flush", "teardown.close-is-enough", sink=NeedsFlush),
    planted("flush-closes", "teardown.flush-before-close", sink=FlushCloses),
    planted("closes-twice-badly", "teardown.close-twice", sink=ClosesTwiceBadly),
    planted("flush-does-nothing", "survives.kill-between", sink=FlushDoesNothing),
    planted("torn-on-kill", "survives.kill-inside", sink=TornOnKill, read=read_whole_lines_only),
    planted("reader-hangs", "survives.kill-between", sink=MarksItsEnd, read=read_once_closed),
    planted("swallows-errors", "survives.full-disk", sink=SwallowsErrors),
    planted("leaves-torn-line", "survives.full-disk", sink=LeavesTornLine, read=read_strictly_once_closed),
    planted("drops-after-full-disk", "survives.full-disk", sink=DropsAfterFullDisk),
    planted("remembers-full-disk", "survives.full-disk", sink=RemembersFullDisk),
    planted("opens-blindly", "survives.read-only", sink=OpensBlindly),
    planted("shares-its-file", "isolation.two-sinks", sink=SharesItsFile),
    planted("erases-first", "isolation.second-sink", sink=ErasesFirst),
    planted("forked-child-writes", "concurrency.fork", sink=ForkedChildWrites),
    planted("breaks-after-fork", "concurrency.fork", sink=BreaksAfterFork),
    planted("not-thread-safe", "concurrency.threads", sink=NotThreadSafe),
    planted("grows-without-bound", "scale.memory", sink=GrowsWithoutBound),
    planted("slows-down", "scale.cost", sink=SlowsDown),
)
"""Sinks that fail at teardown, under kills, on full disks, beside other sinks, in processes, threads, at scale."""
