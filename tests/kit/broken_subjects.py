"""Subjects that do nothing, or everything wrong: none of them may be conformant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torchlens_conformance.kit import Subject
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


NULL = Subject(name="null", open=NullSink, read=read_nothing)
TELLING = Subject(name="telling", open=TellingSink, read=read_told)
CONSTANT = Subject(name="constant", open=PERFECT[0].subject.open, read=read_constant)
UNDECLARED = Subject(name="undeclared", open=NothingDeclared, read=read_nothing)
RAISES = Subject(name="raises", open=raises, read=read_nothing)
EXITS = Subject(name="exits", open=exits, read=read_nothing)
JSONL = PERFECT[0].subject
