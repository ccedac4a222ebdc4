"""Subjects that do nothing, or everything wrong: none of them may be conformant."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from torchlens_conformance.kit import Subject
from torchlens_conformance.kit.defects.base import PlainSink, read_plain
from torchlens_conformance.kit.perfect import PERFECT
from torchlens_conformance.protocol import CAPABILITY_METHODS, Point, ScalarPoint


class NullSink:
    """Takes everything and keeps nothing."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def capabilities(self) -> frozenset[str]:
        """Advertise all."""
        return frozenset(CAPABILITY_METHODS)

    def __getattr__(self, name: str) -> Any:
        if name in CAPABILITY_METHODS.values() or name in ("flush", "close"):
            return lambda *point: None
        raise AttributeError(name)


_TOLD: list[Point] = []


class TellingSink(NullSink):
    """Tells its reader in memory what it was sent, and stores nothing."""

    def __getattr__(self, name: str) -> Any:
        if name in CAPABILITY_METHODS.values():
            return _TOLD.append
        return super().__getattr__(name)


class NothingDeclared(NullSink):
    """Advertises nothing at all."""

    def capabilities(self) -> frozenset[str]:
        """Advertise nothing."""
        return frozenset()


def read_nothing(place: Path) -> list[Point]:
    """Read no points."""
    return []


def read_told(place: Path) -> list[Point]:
    """Return what the sink of this process was told."""
    return list(_TOLD)


def read_constant(place: Path) -> list[Point]:
    """Return the same point whatever is stored."""
    return [ScalarPoint("gradients/mean/weight", 1, 0.5)]


def raises(place: Path) -> Any:
    """Fail to open."""
    raise RuntimeError("no such store")


def exits(place: Path) -> Any:
    """End the process."""
    os._exit(0)


def wait_forever() -> NoReturn:
    """Never return."""
    while True:
        signal.pause()


def hangs(place: Path) -> NoReturn:
    """Hang in open, or in the reader."""
    wait_forever()


def quits(place: Path) -> NoReturn:
    """Ask the interpreter to exit, in open."""
    sys.exit(0)


def interrupts(place: Path) -> NoReturn:
    """Interrupt as the keyboard does, in open."""
    raise KeyboardInterrupt


class RaisesInEmit(PlainSink):
    """Raises something untyped in every emit."""

    def emit(self, point: Point) -> None:
        """Raise."""
        raise ValueError("no room for points")


class QuitsInEmit(PlainSink):
    """Raises SystemExit in every emit."""

    def emit(self, point: Point) -> None:
        """Raise."""
        sys.exit("the sink has had enough")


class ExitsInEmit(PlainSink):
    """Ends the process in the first emit."""

    def emit(self, point: Point) -> None:
        """End the process, with the code of success."""
        os._exit(0)


class HangsInEmit(PlainSink):
    """Hangs in the first emit."""

    def emit(self, point: Point) -> None:
        """Hang."""
        wait_forever()


class HangsInClose(PlainSink):
    """Hangs in close."""

    def close(self) -> None:
        """Hang."""
        wait_forever()


class Floods(PlainSink):
    """Prints without end, on both streams."""

    def emit(self, point: Point) -> None:
        """Print a megabyte, and keep the point."""
        print("x" * (1 << 20))
        print("y" * (1 << 20), file=sys.stderr)
        super().emit(point)


class Chats(PlainSink):
    """Prints two megabytes when it is opened, and works."""

    def __init__(self, place: Path) -> None:
        print("x" * (1 << 20))
        print("y" * (1 << 20), file=sys.stderr)
        super().__init__(place)


class EatsMemory(PlainSink):
    """Takes ten gigabytes in the first emit, bit by bit, and keeps them."""

    def emit(self, point: Point) -> None:
        """Take memory until the system refuses, and insist."""
        self.eaten = [bytearray(b"\x01") * (64 << 20) for _ in range(160)]
        super().emit(point)


class LeavesProcesses(PlainSink):
    """Leaves a process in a session of its own behind, as a daemon would; it keeps nothing of ours open."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 256)
                # So that a test finds it.
                os.execv(sys.executable, [sys.executable, "-c", "import signal; signal.pause()", "left-behind"])
            os._exit(0)


def read_raises(place: Path) -> NoReturn:
    """Raise."""
    raise ValueError("no such column")


def read_garbage(place: Path) -> list[object]:
    """Return objects that are no points."""
    return [{"tag": "a"}, 3, None]


def read_none(place: Path) -> None:
    """Return nothing."""


def read_quits(place: Path) -> NoReturn:
    """Ask the interpreter to exit."""
    sys.exit(0)


def read_endless(place: Path) -> Iterator[Point]:
    """Return points without end."""
    while True:
        yield ScalarPoint("gradients/mean/weight", 1, 0.5)


NULL = Subject(name="null", open=NullSink, read=read_nothing)
TELLING = Subject(name="telling", open=TellingSink, read=read_told)
CONSTANT = Subject(name="constant", open=PERFECT[0].subject.open, read=read_constant)
UNDECLARED = Subject(name="undeclared", open=NothingDeclared, read=read_nothing)
RAISES = Subject(name="raises", open=raises, read=read_nothing)
EXITS = Subject(name="exits", open=exits, read=read_nothing)
QUITS = Subject(name="quits", open=quits, read=read_nothing)
INTERRUPTS = Subject(name="interrupts", open=interrupts, read=read_nothing)
HANGS_IN_OPEN = Subject(name="hangs in open", open=hangs, read=read_nothing)
HANGS_IN_EMIT = Subject(name="hangs in emit", open=HangsInEmit, read=read_plain)
HANGS_IN_CLOSE = Subject(name="hangs in close", open=HangsInClose, read=read_plain)
HANGS_IN_READER = Subject(name="hangs in the reader", open=PlainSink, read=hangs)
RAISES_IN_EMIT = Subject(name="raises in emit", open=RaisesInEmit, read=read_plain)
QUITS_IN_EMIT = Subject(name="quits in emit", open=QuitsInEmit, read=read_plain)
EXITS_IN_EMIT = Subject(name="exits in emit", open=ExitsInEmit, read=read_plain)
FLOODS = Subject(name="floods", open=Floods, read=read_plain)
CHATS = Subject(name="chats", open=Chats, read=read_plain)
EATS_MEMORY = Subject(name="eats memory", open=EatsMemory, read=read_plain)
LEAVES_PROCESSES = Subject(name="leaves processes", open=LeavesProcesses, read=read_plain)
READER_RAISES = Subject(name="reader raises", open=PlainSink, read=read_raises)
READER_GARBAGE = Subject(name="reader gives garbage", open=PlainSink, read=read_garbage)
READER_NONE = Subject(name="reader gives nothing", open=PlainSink, read=read_none)
READER_QUITS = Subject(name="reader quits", open=PlainSink, read=read_quits)
READER_ENDLESS = Subject(name="reader never ends", open=PlainSink, read=read_endless)
JSONL = PERFECT[0].subject
