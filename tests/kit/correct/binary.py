"""Correct sinks that store bytes: frames, compressed streams, archives, maps of memory, columns."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point, Refusal, ScalarPoint, point_to_row, row_to_point

from .base import CorrectSink, WholeFile, pack, unpack
from .files import CsvSink

_FRAME = struct.Struct("<II")


class ChecksummedSink(CsvSink):
    """Frames of length, checksum and content."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.bin")

    def store(self, point: Point) -> None:
        """Store one point."""
        content = self.content(point)
        self.file.append(_FRAME.pack(len(content), zlib.crc32(content)) + content)

    def content(self, point: Point) -> bytes:
        """Return a point as bytes."""
        return pack(point)


def read_frames(place: Path) -> list[bytes]:
    """Return the contents of the whole frames."""
    content, start, found = (place / "points.bin").read_bytes(), 0, []
    while start + _FRAME.size <= len(content):
        length, checksum = _FRAME.unpack_from(content, start)
        frame = content[start + _FRAME.size : start + _FRAME.size + length]
        if len(frame) != length or zlib.crc32(frame) != checksum:
            break
        found.append(frame)
        start += _FRAME.size + length
    return found


def read_checksummed(place: Path) -> list[Point]:
    """Read the frames."""
    return [unpack(frame) for frame in read_frames(place)]


class PickleSink(ChecksummedSink):
    """Frames of pickled rows."""

    def content(self, point: Point) -> bytes:
        """Return a point as bytes."""
        return pickle.dumps(point_to_row(point), protocol=4)


def read_pickles(place: Path) -> list[Point]:
    """Read the frames."""
    return [row_to_point(pickle.loads(frame)) for frame in read_frames(place)]


class DeflateSink(CsvSink):
    """One compressed stream, brought to a byte's end after each point."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.z")
        self.compressor = zlib.compressobj()

    def store(self, point: Point) -> None:
        """Store one point."""
        # A copy, so that a point which the disk did not take leaves no trace in the stream.
        following = self.compressor.copy()
        piece = following.compress(pack(point) + b"\n") + following.flush(zlib.Z_SYNC_FLUSH)
        self.file.append(piece)
        self.compressor = following


def read_deflated(place: Path) -> list[Point]:
    """Decompress as far as it goes, and read whole lines."""
    text = zlib.decompressobj().decompress((place / "points.z").read_bytes())
    return [unpack(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


class GzipSink(CsvSink):
    """One gzip member a point."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.gz")

    def store(self, point: Point) -> None:
        """Store one point."""
        self.file.append(gzip.compress(pack(point), compresslevel=1))


def read_gzip(place: Path) -> list[Point]:
    """Read member by member, up to a torn one."""
    rest, points = (place / "points.gz").read_bytes(), []
    while rest:
        member = zlib.decompressobj(wbits=31)
        content = member.decompress(rest)
        if not member.eof:
            break
        points.append(unpack(content))
        rest = member.unused_data
    return points


class TarSink(CsvSink):
    """A tar archive with a member a point."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.tar")
        self.count = 0

    def store(self, point: Point) -> None:
        """Store one point."""
        content = pack(point)
        member = tarfile.TarInfo(f"{self.count:09d}.json")
        member.size = len(content)
        self.file.append(member.tobuf() + content + bytes(-len(content) % tarfile.BLOCKSIZE))
        self.count += 1


def read_tar(place: Path) -> list[Point]:
    """Read the members; the archive may end in the middle of one."""
    points, path = [], place / "points.tar"
    size = path.stat().st_size
    if not size:
        return []
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            if member.offset_data + member.size > size:
                break
            content = archive.extractfile(member)
            assert content is not None
            points.append(unpack(content.read()))
    return points


class ZipSegmentsSink(CorrectSink):
    """A journal, and every 50 points a zip archive that takes the journal's place."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.place, self.segments = place, 0
        if any(place.iterdir()):
            raise FileExistsError(place)
        self.journal, self.lines = WholeFile(place / "journal000000.log"), 0

    def store(self, point: Point) -> None:
        """Store one point."""
        if self.lines >= 50:
            self.seal()
        self.journal.append(pack(point) + b"\n")
        self.lines += 1

    def seal(self) -> None:
        """Move the journal into an archive. Killed in between, both may exist: the archive counts."""
        content = self.journal.path.read_bytes()
        aside = self.place / "segment.tmp"
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("points.log", content)
        aside.write_bytes(buffer.getvalue())
        try:
            following = WholeFile(self.place / f"journal{self.segments + 1:06d}.log")
        except FileExistsError as error:
            raise OSError(error.errno, "the journal exists") from error
        aside.rename(self.place / f"segment{self.segments:06d}.zip")
        self.journal.close()
        self.journal.path.unlink()
        self.journal, self.lines, self.segments = following, 0, self.segments + 1

    def settle(self) -> None:
        """Hand the store to the disk."""
        self.journal.sync()

    def finish(self) -> None:
        """Finish the store."""
        self.journal.close()


def read_zip_segments(place: Path) -> list[Point]:
    """Read archives and journals by number."""
    contents: dict[str, bytes] = {}
    for path in place.glob("journal*.log"):
        contents[path.stem[-6:]] = path.read_bytes()
    for path in place.glob("segment*.zip"):
        with zipfile.ZipFile(path) as archive:
            contents[path.stem[-6:]] = archive.read("points.log")
    lines = (line for key in sorted(contents) for line in contents[key][: contents[key].rfind(b"\n") + 1].splitlines())
    return [unpack(line) for line in lines]


class IndexedSink(CorrectSink):
    """Contents in one file, where they lie in another; only what the index names counts."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.contents, self.index = WholeFile(place / "contents.bin"), WholeFile(place / "index.bin")

    def store(self, point: Point) -> None:
        """Store one point."""
        content = pack(point)
        self.index.append(struct.pack("<QQ", self.contents.append(content), len(content)))

    def settle(self) -> None:
        """Hand the store to the disk."""
        self.contents.sync()
        self.index.sync()

    def finish(self) -> None:
        """Finish the store."""
        try:
            self.contents.close()
        finally:
            self.index.close()


def read_indexed(place: Path) -> list[Point]:
    """Follow the index."""
    index, contents = (place / "index.bin").read_bytes(), (place / "contents.bin").read_bytes()
    whole = index[: len(index) // 16 * 16]
    return [unpack(contents[start : start + length]) for start, length in struct.iter_unpack("<QQ", whole)]


class MappedSink(CorrectSink):
    """A map of memory over a file; a point counts once its length stands before it."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.descriptor = os.open(place / "points.map", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        self.end = self.room = 0
        self.map: mmap.mmap | None = None

    def store(self, point: Point) -> None:
        """Store one point."""
        content = pack(point)
        while self.end + 16 + len(content) > self.room:
            self._grow()
        assert self.map is not None
        start = self.end + 8
        self.map[start : start + len(content)] = content
        self.map[self.end : start] = struct.pack("<Q", len(content))
        self.end = start + len(content)

    def _grow(self) -> None:
        # Blocks are taken from the disk here, where it can refuse, and not under a write to the map, where it cannot.
        os.posix_fallocate(self.descriptor, self.room, 65536)
        if self.map is not None:
            self.map.close()
        self.room += 65536
        self.map = mmap.mmap(self.descriptor, self.room)

    def settle(self) -> None:
        """Hand the store to the disk."""
        if self.map is not None:
            self.map.flush()

    def finish(self) -> None:
        """Finish the store."""
        if self.map is not None:
            self.map.flush()
            self.map.close()
        os.close(self.descriptor)


def read_mapped(place: Path) -> list[Point]:
    """Read until a length is zero."""
    content, start, points = (place / "points.map").read_bytes(), 0, []
    while start + 8 <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        if not length:
            break
        points.append(unpack(content[start + 8 : start + 8 + length]))
        start += 8 + length
    return points


_COLUMN = struct.Struct("<QQIc8s")


class ColumnsSink(CorrectSink):
    """Scalars as records of fixed width, tags and all other points as text; integers beyond 64 bits are refused."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.scalars, self.others = WholeFile(place / "scalars.bin"), WholeFile(place / "others.log")
        self.tags: dict[str, int] = {}
        self.count = 0

    def store(self, point: Point) -> None:
        """Store one point."""
        if isinstance(point, ScalarPoint):
            self.scalars.append(_COLUMN.pack(self.count, point.step, self._tag(point.tag), *_column(point.value)))
        else:
            self.others.append(b"%d %b\n" % (self.count, pack(point)))
        self.count += 1

    def _tag(self, tag: str) -> int:
        if tag not in self.tags:
            # A tag is a line with a negative number and a point that holds nothing else.
            self.others.append(b"-%d %b\n" % (len(self.tags) + 1, pack(ScalarPoint(tag, 0, 0))))
            self.tags[tag] = len(self.tags) + 1
        return self.tags[tag]

    def settle(self) -> None:
        """Hand the store to the disk."""
        self.scalars.sync()
        self.others.sync()

    def finish(self) -> None:
        """Finish the store."""
        try:
            self.scalars.close()
        finally:
            self.others.close()


def _column(value: int | float) -> tuple[bytes, bytes]:
    if isinstance(value, float):
        return b"f", struct.pack("<d", value)
    if not -(2**63) <= value < 2**63:
        raise Refusal("tracker_value_unsupported", "Too large.", remedy="Send 64 bits.", bits=value.bit_length())
    return b"i", struct.pack("<q", value)


def read_columns(place: Path) -> list[Point]:
    """Bring both files together by their numbers."""
    found: dict[int, Point] = {}
    tags: dict[int, str] = {}
    others = (place / "others.log").read_bytes()
    for line in others[: others.rfind(b"\n") + 1].splitlines():
        number, _, row = line.partition(b" ")
        point: Any = unpack(row)
        if int(number) < 0:
            tags[-int(number)] = point.tag
        else:
            found[int(number)] = point
    scalars = (place / "scalars.bin").read_bytes()
    whole = scalars[: len(scalars) // _COLUMN.size * _COLUMN.size]
    for number, step, tag, kind, bits in _COLUMN.iter_unpack(whole):
        (value,) = struct.unpack("<d" if kind == b"f" else "<q", bits)
        found[number] = ScalarPoint(tags[tag], step, value)
    return [found[number] for number in sorted(found)]
