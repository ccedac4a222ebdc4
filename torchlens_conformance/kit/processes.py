"""Child processes that cannot hang, flood, leak or take us with them.

Every piece of a subject's code runs in a forked child with a session of its own, a timeout, a cap on memory and a cap
on what it prints. The child tells what happened record by record through a pipe, so that a child which dies at once
still leaves everything it had said before. A pipe and not a file: it works on a full disk as well.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from .channels import Channel
from .keepers import Fault, close_private, die_with_parent, flush_streams, fork, in_keeper, side_by_side, sweep
from .watching import (
    CAPPED,
    KILLED,
    NOT_STARTED,
    OK,
    SHOW_STACK,
    TIMED_OUT,
    Limits,
    Outcome,
    Watcher,
    resident_bytes,
    status_bytes,
)

__all__ = [
    "KILLED",
    "NOT_STARTED",
    "OK",
    "TIMED_OUT",
    "Channel",
    "Limits",
    "Outcome",
    "resident_bytes",
    "run_child",
    "show_stack_on_request",
]


def run_child(
    work: Callable[[Channel], None], *, limits: Limits, watch: Callable[[Any], bool] | None = None
) -> Outcome:
    """Run ``work`` in a forked child and wait for its end; nothing that the child started lives on.

    Args:
        work: Called in the child with its channel.
        limits: What the child may take.
        watch: Called with every record as it comes; when it returns True the child is killed at once (signal 9).

    Raises nothing for what the child does. Clause: PROT-10.
    """
    if not in_keeper():
        # A keeper for this one child, to end what it leaves behind.
        outcome = side_by_side([partial(run_child, work, limits=limits, watch=watch)])[0]
        return Outcome(f"{NOT_STARTED}: {outcome.text}") if isinstance(outcome, Fault) else outcome
    seconds = limits.patience.seconds(limits.timeout)
    if seconds is None:
        told = f"{limits.patience.stopped} processes of this subject hung, or took or printed too much"
        return Outcome(f"{NOT_STARTED}: {told}, and no more are tried")
    start = time.monotonic()
    outcome = _run_here(work, replace(limits, timeout=seconds), watch)
    stopped = outcome.ended.startswith(CAPPED)
    limits.patience.note(time.monotonic() - start, hung=outcome.ended == TIMED_OUT, stopped=stopped)
    return outcome


def _run_here(work: Callable[[Channel], None], limits: Limits, watch: Callable[[Any], bool] | None) -> Outcome:
    read_end, write_end = os.pipe()
    output_end, print_end = os.pipe()
    try:
        pid = fork()
    except OSError as error:
        for descriptor in (read_end, write_end, output_end, print_end):
            os.close(descriptor)
        return Outcome(f"{NOT_STARTED}: {error}")
    if pid == 0:
        os.close(read_end)
        os.close(output_end)
        _be_child(work, write_end, print_end, limits)
    os.close(write_end)
    os.close(print_end)
    try:
        return Watcher(pid, read_end, output_end, limits, watch).run()
    finally:
        os.close(read_end)
        os.close(output_end)
        sweep()


def _be_child(work: Callable[[Channel], None], write_end: int, print_end: int, limits: Limits) -> NoReturn:
    code = 1
    try:
        os.setsid()
        die_with_parent()
        close_private()
        _take_streams(print_end)
        # The parent's (pytest's, say) would print the parent's stack when the subject crashes.
        faulthandler.disable()
        show_stack_on_request()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _limit_memory(limits.memory)
        channel = Channel(write_end)
        work(channel)
        channel.send("done")
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            flush_streams()
        # Not sys.exit: handlers of the parent (of pytest, say) must not run in the child, and a sink must not rely on
        # handlers that a killed process never runs.
        os._exit(code)


def show_stack_on_request() -> None:
    """Print this process's stack when the signal for it comes, so that one which hangs can say where."""
    with contextlib.suppress(Exception):
        faulthandler.register(SHOW_STACK, file=2, all_threads=False)


def _take_streams(print_end: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(print_end, 1)
    os.dup2(print_end, 2)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115


_RESERVED = 2 << 30


def _limit_memory(memory: int) -> None:
    # RLIMIT_DATA and not RLIMIT_AS: programs of other runtimes reserve much address space that they never touch.
    used = status_bytes("self", "VmData")
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        # Reserved is not taken, so this is generous; what is taken is watched from outside.
        wanted = used + memory + _RESERVED
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
