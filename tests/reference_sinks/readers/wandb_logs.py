"""A second decoder of wandb's log, by hand, and a writer of such logs.

It shares no code with the reader; the decoder uses no message class of wandb.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32 * 1024


def run_file(folder: Path) -> Path:
    """Return the one run file in a folder."""
    (file,) = folder.glob("*.wandb")
    return file


def raw_records(data: bytes) -> Iterator[bytes]:
    """Yield the payloads of a log, block by block, trusting every checksum."""
    parts = b""
    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK]
        at = 7 if start == 0 else 0
        while at + 7 <= len(block):
            size, kind = struct.unpack_from("<HB", block, at + 4)
            parts += block[at + 7 : at + 7 + size]
            at += 7 + size
            if kind in (1, 4):
                yield parts
                parts = b""


def wire_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of every field of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, message[at : at + size]
            at += size


def second_reading(file: Path) -> list[tuple[int, dict[tuple[str, ...], str]]]:
    """Return step and {path: JSON text} of every history row: Record.history is field 2."""
    rows = []
    for record in raw_records(file.read_bytes()):
        for number, history in wire_fields(record):
            if number != 2 or not isinstance(history, bytes):
                continue
            step, items = 0, {}
            for part, content in wire_fields(history):
                if part == 2:
                    step = dict(wire_fields(content)).get(1, 0)
                elif part == 1:
                    fields = list(wire_fields(content))
                    path = tuple(value.decode() for key, value in fields if key == 2)
                    path = path or tuple(value.decode() for key, value in fields if key == 1)
                    items[path] = next(value.decode() for key, value in fields if key == 16)
            rows.append((step, items))
    return rows


def placed_by_second_reading(file: Path) -> list[tuple[Any, ...]]:
    """Return what every row holds, as plain tuples, in stored order."""
    found: list[tuple[Any, ...]] = []
    for step, items in second_reading(file):
        for path, text in items.items():
            tag = path[0]
            if tag in ("_step", "_timestamp", "_runtime", "_wandb"):
                continue
            if (tag, "_type") in items:
                entry = ("histogram", tag, step, items[tag, "values"], items[tag, "bins"])
                if entry not in found:
                    found.append(entry)
            elif len(path) == 1 and text[0] == '"':
                found.append(("text", tag, step, json.loads(text)))
            elif len(path) == 1 and text[0] in "-0123456789NI":
                found.append(("scalar", tag, step, float(text)))
    return found


def framed(*payloads: bytes) -> bytes:
    """Return a log of these records, cut into fragments and blocks."""
    log = HEADER
    for payload in payloads:
        first, rest = True, payload
        while first or rest:
            room = BLOCK - len(log) % BLOCK
            if room < 7:
                log += bytes(room)
                room = BLOCK
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, not rest]
            log += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
    return log


def row(items: dict[tuple[str, ...] | str, str], step: int | None) -> bytes:
    """Return a Record with one history row; a text key uses the field ``key`` of older versions."""
    from wandb.proto.wandb_internal_pb2 import Record

    record = Record()
    if step is not None:
        record.history.step.num = step
    for path, text in items.items():
        if isinstance(path, str):
            record.history.item.add(key=path, value_json=text)
        else:
            record.history.item.add(nested_key=path, value_json=text)
    return bytes(record.SerializeToString())
