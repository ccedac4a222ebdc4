"""The framing of wandb's offline file: a LevelDB log, every checksum checked (WANDB-1, FID-1).

The file starts with ``:W&B``, a magic number and a version byte, which are part of its first block. Blocks are 32 KiB
long; a record is one fragment or several, each with a header of CRC-32 (over type and data), length (2 bytes) and type
(1 full, 2 first, 3 middle, 4 last). What is left of a block under 7 bytes is zero.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from .damage import Damage

IDENTIFIER = b":W&B"
MAGIC = 0xBEE1
VERSION = 0
"""The version of the file format that is read."""

_FILE_HEADER = struct.Struct("<4sHB")
_FRAGMENT = struct.Struct("<IHB")
_BLOCK = 32 * 1024
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def file_version(file: BinaryIO) -> int:
    """Read the file header and return the version of the format; the file is left behind the header.

    Raises :class:`~reference_sinks.readers.damage.Damage`: ``foreign`` or ``truncated``.
    """
    header = file.read(_FILE_HEADER.size)
    expected = _FILE_HEADER.pack(IDENTIFIER, MAGIC, VERSION)
    if header[:6] != expected[: min(6, len(header))]:
        raise Damage("foreign", 0, "the file does not start like a wandb file")
    if len(header) < _FILE_HEADER.size:
        raise Damage("truncated", 0, "the file header is cut")
    return header[6]


def records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset of the first fragment and the data of every record.

    Args:
        file: A binary file, just behind the file header.

    Raises :class:`~reference_sinks.readers.damage.Damage`: ``truncated`` when the file ends inside a record,
    ``corrupt`` when a checksum, a length or the order of the fragments is wrong.
    """
    parts: list[bytes] = []
    start = offset = _FILE_HEADER.size
    while True:
        room = _BLOCK - offset % _BLOCK
        if room < _FRAGMENT.size:
            if any(file.read(room)):
                raise Damage("corrupt", offset, "the rest of a block is not zero")
            offset += room
            continue
        try:
            fragment = _read_fragment(file, offset, room)
        except Damage as damage:
            # A cut is told where the whole record starts, a wrong checksum where it stands.
            if parts and damage.kind == "truncated":
                raise Damage("truncated", start, damage.detail) from None
            raise
        if fragment is None:
            if parts:
                raise Damage("truncated", start, "the last fragments of a record are missing")
            return
        kind, data = fragment
        if (kind in (_FULL, _FIRST)) is bool(parts):
            raise Damage("corrupt", offset, "the fragments of a record are out of order")
        if not parts:
            start = offset
        parts.append(data)
        offset += _FRAGMENT.size + len(data)
        if kind in (_FULL, _LAST):
            yield start, b"".join(parts)
            parts = []


def last_records(file: BinaryIO, *, size: int) -> Iterator[bytes]:
    """Yield the data of the records that begin in the last two blocks and are whole; what is cut or damaged ends them.

    For a look at the end of a large file that may still grow.

    Args:
        file: A binary file.
        size: Its size in bytes.
    """
    offset = max(_FILE_HEADER.size, (size // _BLOCK - 1) * _BLOCK)
    file.seek(offset)
    parts: list[bytes] | None = None
    while True:
        room = _BLOCK - offset % _BLOCK
        if room < _FRAGMENT.size:
            file.seek(room, 1)
            offset += room
            continue
        try:
            fragment = _read_fragment(file, offset, room)
        except Damage:
            return
        if fragment is None:
            return
        kind, data = fragment
        offset += _FRAGMENT.size + len(data)
        if kind in (_FULL, _FIRST):
            parts = []
        if parts is None:
            # The rest of a record that begins further in front.
            continue
        parts.append(data)
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = None


def _read_fragment(file: BinaryIO, offset: int, room: int) -> tuple[int, bytes] | None:
    header = file.read(_FRAGMENT.size)
    if not header:
        return None
    if len(header) < _FRAGMENT.size:
        raise Damage("truncated", offset, "the header of a fragment is cut")
    checksum, length, kind = _FRAGMENT.unpack(header)
    if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or length > room - _FRAGMENT.size:
        raise Damage("corrupt", offset, f"a fragment of type {kind} and length {length} does not fit")
    data = file.read(length)
    if len(data) < length:
        raise Damage("truncated", offset, "a fragment is cut")
    if zlib.crc32(data, zlib.crc32(header[6:])) != checksum:
        raise Damage("corrupt", offset, "a fragment does not check")
    return kind, data
