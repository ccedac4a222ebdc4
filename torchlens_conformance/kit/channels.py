"""Records from one process to another, whole and at once, through a pipe."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("<I")


class Channel:
    """The sending end: each record is on its way when ``send`` returns."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, *record: Any) -> None:
        """Send one record; everything in it must be picklable."""
        content = pickle.dumps(record, protocol=5)
        rest = memoryview(_LENGTH.pack(len(content)) + content)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]


class Unpacker:
    """The receiving end: gives records back from bytes as they come."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def take(self, content: bytes) -> Iterator[Any]:
        """Yield the records that are whole with ``content``.

        Raises whatever unpickling raises: the other end is not always ours.
        """
        self._pending += content
        start = 0
        try:
            while len(self._pending) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._pending, start)
                end = start + _LENGTH.size + length
                if len(self._pending) < end:
                    break
                record = pickle.loads(bytes(self._pending[start + _LENGTH.size : end]))
                start = end
                yield record
        finally:
            del self._pending[:start]
