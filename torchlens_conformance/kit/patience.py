"""How long one waits for processes of a subject that has hung before."""

from __future__ import annotations

import mmap
import struct

SHORT = 5.0
"""Seconds for each process once one has hung, when none that ended took longer."""

MOST = 8
"""Processes that may hang, or take or print too much; after that no more are started."""

_FACTOR = 3.0
_STATE = struct.Struct("<QQd")


class Patience:
    """The patience with one subject: full until one of its processes hangs, short after that, and bounded.

    What hangs once usually hangs in every scenario, and nobody waits for all of them in full. Later processes get three
    times what the slowest process that ended by itself took. What eats memory or prints without end costs time as well,
    so that is counted too. It lives in memory that forked processes share, so that
    scenarios which run side by side know of each other.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    def seconds(self, full: float) -> float | None:
        """Return how long to wait for the next process, or None when it is not worth a start."""
        hung, stopped, slowest = self._read()
        if stopped >= MOST:
            return None
        return min(full, max(SHORT, _FACTOR * slowest)) if hung else full

    def note(self, seconds: float, *, hung: bool = False, stopped: bool = False) -> None:
        """Note that a process ended by itself after ``seconds``; or that it hung or was stopped for another reason."""
        count, capped, slowest = self._read()
        slowest = slowest if hung or stopped else max(slowest, seconds)
        _STATE.pack_into(self._page, 0, count + hung, capped + (hung or stopped), slowest)

    @property
    def stopped(self) -> int:
        """How many processes hung or were stopped for another reason."""
        return self._read()[1]

    def _read(self) -> tuple[int, int, float]:
        hung, stopped, slowest = _STATE.unpack_from(self._page, 0)
        return hung, stopped, slowest
