"""Child processes that cannot hang, flood, leak or take us with them.

Every piece of a subject's code runs in a forked child with a session of its own, a timeout, a cap on memory and a cap
on what it prints. The child tells what happened record by record through a pipe, so that a child which dies at once
still leaves everything it had said before. A pipe and not a file: it works on a full disk as well.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import resource
import select
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

OK, TIMED_OUT, KILLED = "ok", "timed out", "killed by the scenario"
"""Words of :class:`Outcome`; the others name an exit code, a signal or a cap."""

_LENGTH = struct.Struct("<I")
_TAIL = 4096
_TICK = 0.05
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a child may take.

    Args:
        timeout: Seconds until its process group is killed.
        memory: Bytes of memory on top of what it was forked with.
        output: Bytes that it may print.
    """

    timeout: float = 20.0
    memory: int = 3 << 30
    output: int = 16 << 20


@dataclass(slots=True)
class Outcome:
    """How a child ended and what it said.

    Args:
        ended: ``ok``, ``timed out``, ``killed by the scenario``, ``exit code N``, ``signal N``, ``took more than N MB
            of memory``, ``printed more than N MB`` or ``could not start: ...``. Only a child that ran to its end is
            ok: one that left early with exit code 0 is ``exit code 0``.
        records: What it sent, in order.
        output: The last of what it printed.
        printed: How many bytes it printed.
    """

    ended: str
    records: list[Any] = field(default_factory=list)
    output: str = ""
    printed: int = 0


class Channel:
    """The child's end of the pipe: sends records, whole and at once."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, *record: Any) -> None:
        """Send one record; everything in it must be picklable."""
        content = pickle.dumps(record, protocol=5)
        rest = memoryview(_LENGTH.pack(len(content)) + content)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]


def run_child(
    work: Callable[[Channel], None], *, limits: Limits, watch: Callable[[Any], bool] | None = None
) -> Outcome:
    """Run ``work`` in a forked child and wait for its end.

    Args:
        work: Called in the child with its channel.
        limits: What the child may take.
        watch: Called here with every record as it comes; when it returns True the child is killed at once (signal 9).

    Raises nothing for what the child does. Clause: PROT-10.
    """
    read_end, write_end = os.pipe()
    output_end, print_end = os.pipe()
    _flush_streams()
    try:
        with warnings.catch_warnings():
            # Later Pythons warn of threads beside a fork; the child touches nothing that a thread may have locked.
            warnings.simplefilter("ignore")
            pid = os.fork()
    except OSError as error:
        for descriptor in (read_end, write_end, output_end, print_end):
            os.close(descriptor)
        return Outcome(f"could not start: {error}")
    if pid == 0:
        os.close(read_end)
        os.close(output_end)
        _be_child(work, write_end, print_end, limits)
    os.close(write_end)
    os.close(print_end)
    try:
        return _Watcher(pid, read_end, output_end, limits, watch).run()
    finally:
        os.close(read_end)
        os.close(output_end)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _be_child(work: Callable[[Channel], None], write_end: int, print_end: int, limits: Limits) -> NoReturn:
    code = 1
    try:
        os.setsid()
        _die_with_parent()
        _take_streams(print_end)
        # The parent's (pytest's, say) would print the parent's stack when the subject crashes.
        faulthandler.disable()
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
            _flush_streams()
        # Not sys.exit: handlers of the parent (of pytest, say) must not run in the child, and a sink must not rely on
        # handlers that a killed process never runs.
        os._exit(code)


_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    # Where the system can: an interrupted certification then leaves nothing behind, however it was interrupted.
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _take_streams(print_end: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(print_end, 1)
    os.dup2(print_end, 2)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115


def _limit_memory(memory: int) -> None:
    # RLIMIT_DATA and not RLIMIT_AS: programs of other runtimes reserve much address space that they never touch.
    used = _status_bytes("self", "VmData")
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = used + memory + (256 << 20)
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def resident_bytes(pid: int | str = "self") -> int:
    """Return the bytes of memory that a process holds; 0 when the system does not say."""
    return _status_bytes(pid, "VmRSS")


def _status_bytes(pid: int | str, key: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


class _Watcher:
    """Waits for one child, drains its pipes and holds it to its limits."""

    def __init__(
        self, pid: int, records: int, output: int, limits: Limits, watch: Callable[[Any], bool] | None
    ) -> None:
        self.pid, self.limits, self.watch = pid, limits, watch
        self.pipes = {records: self._take_records, output: self._take_output}
        self.pending = bytearray()
        self.outcome = Outcome("")
        self.done = False
        self.most = resident_bytes() + limits.memory
        for descriptor in self.pipes:
            os.set_blocking(descriptor, False)

    def run(self) -> Outcome:
        try:
            handle = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        except OSError:
            handle = -1
        try:
            self._loop(handle)
        finally:
            # Also after a regular end: a sink may have left a process behind.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            if not self.done:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            if handle >= 0:
                os.close(handle)
        return self.outcome

    def _loop(self, handle: int) -> None:
        deadline = time.monotonic() + self.limits.timeout
        next_look = time.monotonic() + _TICK
        waiting = [*self.pipes, *([handle] if handle >= 0 else [])]
        while True:
            ready, _, _ = select.select(waiting, [], [], _TICK if handle >= 0 else 0.002)
            for descriptor in ready:
                if descriptor != handle and not self._drain(descriptor):
                    waiting.remove(descriptor)
            if self._ended(handle in ready or handle < 0):
                return
            now = time.monotonic()
            if now > deadline:
                self._kill(TIMED_OUT)
            elif now > next_look:
                next_look = now + _TICK
                if resident_bytes(self.pid) > self.most:
                    self._kill(f"took more than {self.limits.memory >> 20} MB of memory")

    def _ended(self, maybe: bool) -> bool:
        if not maybe:
            return False
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return False
        self.done = True
        for descriptor in self.pipes:
            while self._drain(descriptor, more=True):
                pass
        self.outcome.ended = self.outcome.ended or _how(status, self.outcome.records)
        return True

    def _kill(self, why: str) -> None:
        self.outcome.ended = self.outcome.ended or why
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _drain(self, descriptor: int, *, more: bool = False) -> bool:
        """Read what is there; return False at the end, or when ``more`` is asked for and nothing is there."""
        try:
            content = os.read(descriptor, _BLOCK)
        except BlockingIOError:
            return not more
        if content:
            self.pipes[descriptor](content)
        return bool(content)

    def _take_output(self, content: bytes) -> None:
        self.outcome.printed += len(content)
        self.outcome.output = (self.outcome.output + content[-_TAIL:].decode("utf-8", "replace"))[-_TAIL:]
        if self.outcome.printed > self.limits.output and not self.done:
            self._kill(f"printed more than {self.limits.output >> 20} MB")

    def _take_records(self, content: bytes) -> None:
        self.pending += content
        start = 0
        while len(self.pending) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self.pending, start)
            end = start + _LENGTH.size + length
            if len(self.pending) < end:
                break
            record = pickle.loads(bytes(self.pending[start + _LENGTH.size : end]))
            start = end
            self.outcome.records.append(record)
            if self.watch is not None and self.watch(record):
                self._kill(KILLED)
        del self.pending[:start]


def _how(status: int, records: list[Any]) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    code = os.WEXITSTATUS(status)
    return OK if code == 0 and records and records[-1] == ("done",) else f"exit code {code}"
