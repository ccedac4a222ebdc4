"""What every reader returns: points in stored order, and what it could not place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torchlens_conformance.protocol import Point


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Something in the store that is no point of the protocol.

    Args:
        where: Where it stands: a file and an offset, a record number.
        reason: Why it is no point, in a few words; equal reasons are spelled equally.
        content: What it holds, verbatim as far as that can be said in plain values.
    """

    where: str
    reason: str
    content: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The points of one store, in stored order; iterating over the result iterates over them.

    Args:
        points: Every point that was stored, in stored order.
        unplaced: What was stored and is no point.
        torn: None, or what is wrong with the tail of the file: where it is cut and what was lost.
        closed: Whether the store says that its writer finished; None when the format cannot say so.
        reader: The name of the reader.
        notes: What the reader had to infer, in words.
    """

    points: tuple[Point, ...]
    unplaced: tuple[Unplaced, ...] = ()
    torn: str | None = None
    closed: bool | None = None
    reader: str = ""
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)
