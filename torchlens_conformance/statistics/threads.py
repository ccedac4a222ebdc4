"""A few threads of our own for kernels that release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import count

_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def _workers(number: int) -> ThreadPoolExecutor:
    """Return a pool of at least ``number`` threads that belongs to this process.

    A forked child inherits the object but not the threads, so the owner's process id is kept beside it. Two threads
    that get here at once may make one pool too many, which does no harm.
    """
    global _pool
    if _pool is None or _pool[0] != os.getpid() or _pool[1] < number:
        _pool = (os.getpid(), number, ThreadPoolExecutor(number, thread_name_prefix="statistics"))
    return _pool[2]


def share(tasks: int, work: Callable[[int], None], *, threads: int) -> None:
    """Call ``work`` with 0 .. ``tasks - 1``, the calling thread and ``threads - 1`` others each taking the next one.

    All threads are done when this returns; an exception stops the others at their next task.
    """
    numbers = count()
    stopped = False

    def take() -> None:
        nonlocal stopped
        try:
            for number in numbers:
                if number >= tasks or stopped:
                    return
                work(number)
        except BaseException:
            stopped = True
            raise

    helpers: list[Future[None]] = []
    try:
        if min(threads, tasks) > 1:
            # At the end of the interpreter no more threads start; the caller then does all the work.
            with suppress(RuntimeError):
                pool = _workers(threads - 1)
                helpers.extend(pool.submit(take) for _ in range(min(threads, tasks) - 1))
        take()
    finally:
        wait(helpers)
    for helper in helpers:
        helper.result()
