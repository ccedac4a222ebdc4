"""The framing of TensorBoard event files: TFRecord, every checksum checked (TB-1, FID-1).

A record is its length (8 bytes, little-endian), the masked CRC-32C of these 8 bytes, the data, and the masked CRC-32C
of the data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from ..packages import require_package
from .damage import Damage

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the data of every record, from the start of the file to its end.

    Args:
        file: A binary file at its start.

    Raises :class:`~reference_sinks.readers.damage.Damage`: ``truncated`` when the file ends inside a record,
    ``corrupt`` when a checksum is wrong, ``foreign`` when that is so for the very first length.
    """
    checksum: Callable[[bytes], int] = require_package("google_crc32c", extra="tensorboard").value
    offset = 0
    while True:
        header = file.read(_HEADER.size)
        if not header:
            return
        if len(header) < _HEADER.size:
            # A first record is never longer than 2**16 bytes, so a torn one still shows its zeros.
            foreign = offset == 0 and any(header[2:8])
            raise Damage("foreign" if foreign else "truncated", offset, "the header of a record is cut")
        length, length_checksum = _HEADER.unpack(header)
        if length_checksum != _masked(checksum(header[:8])):
            raise Damage("foreign" if offset == 0 else "corrupt", offset, "the length of a record does not check")
        body = file.read(length + _FOOTER.size)
        if len(body) < length + _FOOTER.size:
            raise Damage("truncated", offset, "a record is cut")
        data = body[:length]
        if _FOOTER.unpack(body[length:])[0] != _masked(checksum(data)):
            raise Damage("corrupt", offset, "the data of a record does not check")
        yield offset, data
        offset += _HEADER.size + length + _FOOTER.size


def _masked(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + _MASK_DELTA) & 0xFFFFFFFF
