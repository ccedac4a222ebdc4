"""The records of wandb's offline file: the few fields that hold data, by their numbers in protobuf's wire format.

A message's field numbers never change, so the file is read alike for every version of wandb, and without wandb, whose
import takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5

_HISTORY, _FILES, _TBRECORD, _EXIT = 2, 6, 9, 18
_ITEM, _STEP, _STEP_NUMBER = 1, 2, 1
_KEY, _NESTED_KEY, _VALUE = 1, 2, 16
_FILE, _PATH = 1, 1


class NotARecord(Exception):
    """The bytes are no protobuf message of this kind."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row of the history.

    Args:
        step: The row's step, or None where the record has none of its own.
        items: Path and JSON text of every item, in stored order; a path has one part or more.
    """

    step: int | None
    items: tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True, slots=True)
class WandbRecord:
    """What one record says; of most records nothing.

    Args:
        history: Its row of the history, or None.
        is_exit: Whether it marks the end of the run.
        follows_tensorboard: Whether it tells wandb's relay to follow a folder.
        files: Paths of files that it keeps among the run's.
    """

    history: HistoryRow | None = None
    is_exit: bool = False
    follows_tensorboard: bool = False
    files: tuple[str, ...] = ()


def parse_record(data: bytes) -> WandbRecord:
    """Return what a record says. Raises :class:`NotARecord`."""
    try:
        found = list(_fields(data))
        # A record is one thing at a time, by protobuf's rule the last one that stands there; a lone pass suffices,
        # since wandb writes only one.
        row = next((_history(_message(value)) for number, value in found if number == _HISTORY), None)
        files = tuple(path for number, value in found if number == _FILES for path in _paths(_message(value)))
    except (IndexError, UnicodeDecodeError):
        raise NotARecord from None
    numbers = {number for number, _ in found}
    return WandbRecord(row, _EXIT in numbers, _TBRECORD in numbers, files)


def _history(data: bytes) -> HistoryRow:
    step: int | None = None
    items = []
    for number, value in _fields(data):
        if number == _ITEM:
            items.append(_item(_message(value)))
        elif number == _STEP:
            step = _step(_message(value))
    return HistoryRow(step, tuple(items))


def _item(data: bytes) -> tuple[tuple[str, ...], str]:
    key, nested, text = "", [], ""
    for number, value in _fields(data):
        if number == _KEY:
            key = _message(value).decode()
        elif number == _NESTED_KEY:
            nested.append(_message(value).decode())
        elif number == _VALUE:
            text = _message(value).decode()
    return tuple(nested) or (key,), text


def _step(data: bytes) -> int:
    step = 0
    for number, value in _fields(data):
        if number == _STEP_NUMBER and isinstance(value, int):
            # Negative numbers stand there as their two's complement.
            step = value - 2**64 if value >= 2**63 else value
    return step


def _paths(data: bytes) -> Iterator[str]:
    for number, value in _fields(data):
        if number == _FILE:
            fields = dict(_fields(_message(value)))
            yield _message(fields.get(_PATH, b"")).decode()


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise NotARecord
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field. Raises ``IndexError`` at a cut and :class:`NotARecord`."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise NotARecord
        if at + size > end or key < 8:
            raise NotARecord
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise NotARecord
