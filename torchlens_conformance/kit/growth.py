"""Whether the memory of a process that is sent points keeps growing."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from .watching import resident_bytes

BLOCKS = 10
"""Blocks of points, each ending with a flush, that growth is asked over; of more blocks the last so many."""

GROWTH_FLOOR = 2 << 20
"""Bytes by which a process may grow over the blocks, whatever it does: allocators round up."""

GROWTH_PER_POINT = 48
"""Bytes a point by which it may grow beside that; a kept point alone takes some 200."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """By how much a process grew over its last blocks of points.

    Args:
        bytes: From the beginning of the last ten blocks to their end; negative when it shrank.
        points: Sent in between.
    """

    bytes: int
    points: int

    @property
    def allowed(self) -> float:
        """Bytes by which the process may grow over these points."""
        return GROWTH_FLOOR + GROWTH_PER_POINT * self.points

    @property
    def keeps_on(self) -> bool:
        """Whether it grew by more than it may."""
        return self.bytes > self.allowed


def held_bytes() -> int:
    """Return the bytes of memory that this process holds, without what is free in it.

    A forked process begins with its parent's free memory, which may be hundreds of megabytes: a sink that keeps points
    fills it up, and the process does not grow. So the allocator is asked to give back what it holds free, where it can.
    """
    gc.collect()
    trim = _trim()
    if trim is not None:
        trim(0)
    return resident_bytes()


@cache
def _trim() -> Any:
    """Return the function of the C library that gives free memory back (glibc's), or None."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def growth(memory: Sequence[int], points: int) -> Growth:
    """Return by how much a process grew over the last ten blocks of points.

    The first of these blocks warms up. What an allocator gives back and takes again moves one block by megabytes, so
    three blocks speak for each end.

    Args:
        memory: Bytes of memory after each block's flush; at least six blocks, all of the same number of points.
        points: Sent in all the blocks.
    """
    last = memory[-BLOCKS:]
    between = points * (len(last) - 4) // len(memory)
    return Growth(bytes=int(median(last[-3:]) - median(last[1:4])), points=between)
