"""Keepers: processes of ours in which a subject's processes are started, so that none of those outlives them.

What a subject's process leaves behind, a process in a session of its own for example, falls to its keeper, which ends
it. Keepers also run side by side, so that scenarios use more than one processor.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from .channels import Channel, Unpacker

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SWEEPING = 5.0
# Seconds: a subject may start processes as fast as they are ended, or leave one that nothing ends.

_keeper = 0
# The process id of the keeper that this process is, or was forked from.
_private: list[int] = []
# Descriptors of a keeper that are no business of a subject.


@dataclass(frozen=True, slots=True)
class Fault:
    """What a job gave when it gave no value: a fault of ours, or a keeper that died.

    Args:
        text: What went wrong.
    """

    text: str


def in_keeper() -> bool:
    """Whether this process is a keeper; false in the processes that it starts."""
    return _keeper == os.getpid()


def side_by_side(jobs: Sequence[Callable[[], Any]], *, workers: int = 2) -> list[Any]:
    """Run jobs in ``workers`` keepers and return what each gave, or its :class:`Fault`, in the order of the jobs.

    A free keeper takes the next job, so long jobs should stand first. In a keeper they run right here, one after
    another.

    Args:
        jobs: At most 256; what they return must be picklable.
        workers: How many keepers.
    """
    if in_keeper():
        return [_value_or_fault(job) for job in jobs]
    queue_end, feed_end = os.pipe()
    # A pipe is the queue: whichever keeper is free reads the next index.
    os.write(feed_end, bytes(range(len(jobs))))
    os.close(feed_end)
    keepers: dict[int, int] = {}
    values: dict[int, Any] = {}
    try:
        try:
            for _ in range(min(workers, len(jobs))):
                _start_keeper(jobs, queue_end, keepers)
        finally:
            os.close(queue_end)
        _collect(list(keepers), values)
    finally:
        for descriptor, pid in keepers.items():
            os.close(descriptor)
            # At its end already, unless something interrupted us.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
    return [values.get(index, Fault("the process that ran it ended early")) for index in range(len(jobs))]


def sweep() -> None:
    """End every process that is left in this keeper, those in sessions of their own as well."""
    deadline = time.monotonic() + _SWEEPING
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            for pid in children_of(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)


def close_private() -> None:
    """Close what a process forked from a keeper inherited and must not touch."""
    for descriptor in _private:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _private.clear()


def die_with_parent() -> None:
    """Ask the system to end this process when its parent ends, where it can; nothing stays behind a killed run."""
    _ask_system(_PR_SET_PDEATHSIG, signal.SIGKILL)


def flush_streams() -> None:
    """Flush what this process printed, so that a fork does not print it again."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def fork() -> int:
    """Fork, without the warning that later Pythons give of threads beside a fork.

    What our processes do then touches nothing that another thread may have locked.
    """
    flush_streams()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def _ask_system(option: int, value: int) -> None:
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(option, value)


def _start_keeper(jobs: Sequence[Callable[[], Any]], queue_end: int, keepers: dict[int, int]) -> None:
    read_end, write_end = os.pipe()
    try:
        pid = fork()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        # With fewer keepers it takes longer; with none each job gives a fault.
        return
    if pid == 0:
        for descriptor in (read_end, *keepers):
            os.close(descriptor)
        _be_keeper(jobs, queue_end, Channel(write_end))
    os.close(write_end)
    keepers[read_end] = pid


def _be_keeper(jobs: Sequence[Callable[[], Any]], queue_end: int, channel: Channel) -> NoReturn:
    global _keeper
    code = 1
    try:
        die_with_parent()
        _ask_system(_PR_SET_CHILD_SUBREAPER, 1)
        _keeper = os.getpid()
        # An interrupt from the keyboard reaches us too; it is for our parent, which then ends us.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _leave)
        signal.set_wakeup_fd(-1)
        # What was there before the fork stays shared: the collector need not touch it.
        gc.freeze()
        _private.extend((queue_end, channel.descriptor))
        while index := os.read(queue_end, 1):
            _tell(channel, index[0], _value_or_fault(jobs[index[0]]))
        code = 0
    except SystemExit:
        pass
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sweep()
        os._exit(code)


def _tell(channel: Channel, index: int, value: Any) -> None:
    try:
        channel.send(index, value)
    except OSError:
        raise
    except Exception as error:
        # It cannot be pickled, and nothing of it is on its way yet.
        channel.send(index, Fault(f"{type(error).__name__}: {error}"))


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(number)


def _value_or_fault(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except Exception as error:
        return Fault(f"{type(error).__name__}: {error}")


def _collect(descriptors: list[int], values: dict[int, Any]) -> None:
    unpackers = {descriptor: Unpacker() for descriptor in descriptors}
    while descriptors:
        for descriptor in select.select(descriptors, [], [])[0]:
            content = os.read(descriptor, 1 << 20)
            if not content:
                descriptors.remove(descriptor)
            values.update(unpackers[descriptor].take(content))


def children_of(parent: int) -> list[int]:
    """Return the ids of the processes that a single-threaded process started or that fell to it."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as pids:
            return [int(pid) for pid in pids.read().split()]
    except OSError:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(name) == parent]


def _parent_of(pid: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])
    return 0
