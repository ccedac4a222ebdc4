"""Waiting for one child process: what it may take, how it ended, and what it said."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .channels import Unpacker
from .patience import Patience

OK, TIMED_OUT, KILLED = "ok", "timed out", "killed by the scenario"
"""Words of :class:`Outcome`; the others name an exit code, a signal or a cap."""

NOT_STARTED = "could not start"
"""What ``ended`` of an :class:`Outcome` begins with when there was no child at all."""

CAPPED = ("took more than ", "printed more than ")
"""What it begins with when the child was stopped at a cap."""

SHOW_STACK = signal.SIGUSR2
"""The signal at which a child prints where it is."""

_TAIL = 4096
_MOST_CALLS = 4
_STACK, _STACK_HEAD = 1 << 18, "Stack (most recent call first):"
# A stack may be long, and its innermost calls stand first.
_TICK = 0.05
_BLOCK = 1 << 20
_LAST_WORDS = 0.5
# Seconds that a hanging child is given to print where it hangs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a child may take.

    Args:
        timeout: Seconds until its process group is killed.
        memory: Bytes of memory on top of what it was forked with.
        output: Bytes that it may print.
        patience: Shared by all children of one subject.
    """

    timeout: float = 20.0
    memory: int = 1 << 30
    output: int = 16 << 20
    patience: Patience = field(default_factory=Patience, compare=False, repr=False)


@dataclass(slots=True)
class Outcome:
    """How a child ended and what it said.

    Args:
        ended: ``ok``, ``timed out``, ``killed by the scenario``, ``exit code N``, ``signal N``, ``took more than N MB
            of memory``, ``printed more than N MB`` or ``could not start: ...``. Only a child that ran to its end is
            ok: one that left early with exit code 0 is ``exit code 0``.
        records: What it sent, in order.
        output: The last of what it printed; of one that timed out, a last line says where it hung.
        printed: How many bytes it printed.
    """

    ended: str
    records: list[Any] = field(default_factory=list)
    output: str = ""
    printed: int = 0


def resident_bytes(pid: int | str = "self") -> int:
    """Return the bytes of memory that a process holds; 0 when the system does not say."""
    return status_bytes(pid, "VmRSS")


def status_bytes(pid: int | str, key: str) -> int:
    """Return the bytes that the system tells under ``key`` (``VmRSS``, ``VmData``); 0 when it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


class Watcher:
    """Waits for one child, drains its pipes and holds it to its limits.

    Args:
        pid: The child.
        records: Where its records come.
        output: Where what it prints comes.
        limits: What it may take.
        watch: Sees every record and says whether to kill the child.
    """

    def __init__(
        self, pid: int, records: int, output: int, limits: Limits, watch: Callable[[Any], bool] | None
    ) -> None:
        self.pid, self.limits, self.watch = pid, limits, watch
        self.pipes = {records: self._take_records, output: self._take_output}
        self.unpacker = Unpacker()
        self.outcome = Outcome("")
        self.done = self.asked = False
        self.most = resident_bytes() + limits.memory
        for descriptor in self.pipes:
            os.set_blocking(descriptor, False)

    def run(self) -> Outcome:
        """Wait until the child has ended, and end its process group."""
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
            if self.asked and now > deadline:
                self._kill(TIMED_OUT)
            elif now > deadline:
                # Counted from here, since this process may have been late itself.
                self.asked, deadline = True, now + _LAST_WORDS
                self._signal(SHOW_STACK)
            elif now > next_look:
                next_look = now + _TICK
                if resident_bytes(self.pid) > self.most:
                    self._kill(f"{CAPPED[0]}{self.limits.memory >> 20} MB of memory")

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
        if self.asked:
            self.outcome.ended = self.outcome.ended or TIMED_OUT
            said, _, stack = self.outcome.output.rpartition(_STACK_HEAD)
            self.outcome.output = said + hung_where(stack)
        self.outcome.ended = self.outcome.ended or _how(status, self.outcome.records)
        return True

    def _kill(self, why: str) -> None:
        self.outcome.ended = self.outcome.ended or why
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

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
        most = _STACK if self.asked else _TAIL
        self.outcome.output = (self.outcome.output + content[-most:].decode("utf-8", "replace"))[-most:]
        if self.outcome.printed > self.limits.output and not self.done:
            self._kill(f"{CAPPED[1]}{self.limits.output >> 20} MB")

    def _take_records(self, content: bytes) -> None:
        try:
            for record in self.unpacker.take(content):
                self.outcome.records.append(record)
                if self.watch is not None and self.watch(record):
                    self._kill(KILLED)
        except Exception as error:
            # The subject wrote into a pipe that is not its own, or sent what cannot be brought back.
            self._kill(f"told what cannot be read ({type(error).__name__})")


def _how(status: int, records: list[Any]) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    code = os.WEXITSTATUS(status)
    return OK if code == 0 and records and records[-1] == ("done",) else f"exit code {code}"


_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (\S+)$', re.MULTILINE)
_OURS = os.path.dirname(__file__)


def hung_where(stack: str) -> str:
    """Return a line that says where a child hung, from the stack that it printed; empty when there is none in it."""
    frames = [match.groups() for match in _FRAME.finditer(stack)]
    calls = [
        f"{name} ({os.path.basename(file)}, line {line})"
        for file, line, name in itertools.takewhile(lambda frame: not frame[0].startswith(_OURS), frames)
    ]
    return f"\nIt hung in {', called by '.join(calls[:_MOST_CALLS])}.\n" if calls else ""
