"""Correct sinks that store text: lines, tables, arrays, many files, mirrors."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from pathlib import Path
from typing import Any
from zlib import crc32

from torchlens_conformance.protocol import Point, Refusal, ScalarPoint

from .base import CorrectSink, WholeFile, pack, unpack

csv.field_size_limit(2**31 - 1)


class CsvSink(CorrectSink):
    """A table of kind, tag, step and content."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "table.csv")

    def store(self, point: Point) -> None:
        """Store one point."""
        row = io.StringIO(newline="")
        tag = getattr(point, "tag", "").encode("unicode_escape").decode("ascii")
        csv.writer(row).writerow([type(point).__name__, tag, getattr(point, "step", ""), pack(point).decode("ascii")])
        self.file.append(row.getvalue().encode("ascii"))

    def settle(self) -> None:
        """Hand the store to the disk."""
        self.file.sync()

    def finish(self) -> None:
        """Finish the store."""
        self.file.close()


def read_csv(place: Path) -> list[Point]:
    """Read the table; a torn row has no line end."""
    text = (place / "table.csv").read_bytes().decode("ascii")
    return [unpack(row[3]) for row in csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))]


class Base64Sink(CsvSink):
    """A line of base64 a point; the words come as a list."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.b64")

    def store(self, point: Point) -> None:
        """Store one point."""
        self.file.append(base64.b64encode(pack(point)) + b"\n")

    def capabilities(self) -> Any:
        """Return the words."""
        return sorted(super().capabilities())


def read_base64(place: Path) -> list[Point]:
    """Read the lines."""
    content = (place / "points.b64").read_bytes()
    return [unpack(base64.b64decode(line)) for line in content[: content.rfind(b"\n") + 1].split(b"\n") if line]


class JsonArraySink(CsvSink):
    """One JSON array, closed again after each point."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.json")
        self.file.append(b"[\n]")
        self.first = True

    def store(self, point: Point) -> None:
        """Store one point."""
        piece = (b"" if self.first else b",\n") + pack(point) + b"\n]"
        end = self.file.size - 2 if not self.first else self.file.size - 1
        try:
            self.file.write_at(end, piece)
        except OSError:
            # The bracket that was overwritten had been there before: there is room for it.
            self.file.write_at(end, b"]" if self.first else b"\n]")
            raise
        self.file.size = end + len(piece)
        self.first = False


def read_json_array(place: Path) -> list[Point]:
    """Parse the array; without its bracket, cut to the last whole line."""
    text = (place / "points.json").read_text("ascii")
    try:
        rows = json.loads(text)
    except ValueError:
        rows = []
        for line in text.splitlines()[1:]:
            try:
                rows.append(json.loads(line.rstrip(",")))
            except ValueError:
                break
    return [unpack(json.dumps(row)) for row in rows]


class FilePerPointSink(CorrectSink):
    """Each point is a file, written aside and moved to its name."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.folder = place / "points"
        self.folder.mkdir()
        self.count = 0

    def store(self, point: Point) -> None:
        """Store one point."""
        aside = self.folder / "aside.tmp"
        try:
            aside.write_bytes(pack(point))
            # A thousand files a folder keep the cost of a point flat.
            folder = self.folder / f"{self.count // 1000:08d}"
            folder.mkdir(exist_ok=True)
            aside.rename(folder / f"{self.count % 1000:03d}.json")
        except FileExistsError as error:
            raise OSError(error.errno, "cannot make a folder") from error
        self.count += 1


def read_file_per_point(place: Path) -> list[Point]:
    """Read the files in the order of their names."""
    return [unpack(path.read_bytes()) for path in sorted((place / "points").glob("*/*.json"))]


class ShardedSink(CorrectSink):
    """A file for each of eight groups of tags, and a number in each line."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.files = [WholeFile(place / f"shard{index}.txt") for index in range(8)]
        self.count = 0

    def store(self, point: Point) -> None:
        """Store one point."""
        shard = crc32(getattr(point, "tag", "").encode("utf-8", "surrogatepass")) % 8
        self.files[shard].append(b"%d %b\n" % (self.count, pack(point)))
        self.count += 1

    def settle(self) -> None:
        """Hand the store to the disk."""
        for file in self.files:
            file.sync()

    def finish(self) -> None:
        """Finish the store."""
        for file in self.files:
            file.close()


def read_numbered(place: Path) -> list[Point]:
    """Bring the lines of all files of the place into the order of their numbers."""
    found: list[tuple[int, bytes]] = []
    for path in place.glob("*.txt"):
        content = path.read_bytes()
        for line in content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]:
            number, _, row = line.partition(b" ")
            found.append((int(number), row))
    return [unpack(row) for _, row in sorted(found)]


class TwoFilesSink(ShardedSink):
    """Scalars in one file, all other points in another, with numbers."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.files = [WholeFile(place / "scalars.txt"), WholeFile(place / "others.txt")]
        self.count = 0

    def store(self, point: Point) -> None:
        """Store one point."""
        self.files[not isinstance(point, ScalarPoint)].append(b"%d %b\n" % (self.count, pack(point)))
        self.count += 1


class RotatedSink(ShardedSink):
    """A new file every 40 points; the old ones are closed."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.place, self.count = place, 0
        self.files = [WholeFile(place / "part0000000.txt")]

    def store(self, point: Point) -> None:
        """Store one point."""
        if self.count and self.count % 40 == 0 and self.files[0].size:
            try:
                following = WholeFile(self.place / f"part{self.count:07d}.txt")
            except FileExistsError as error:
                raise OSError(error.errno, "the part exists") from error
            self.files.pop().close()
            self.files.append(following)
        self.files[0].append(b"%d %b\n" % (self.count, pack(point)))
        self.count += 1


class MirroredSink(ShardedSink):
    """Everything twice, in two files; the reader takes the one that has more."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.files = [WholeFile(place / "left.log"), WholeFile(place / "right.log")]

    def store(self, point: Point) -> None:
        """Store one point."""
        line = pack(point) + b"\n"
        before = self.files[0].size
        self.files[0].append(line)
        try:
            self.files[1].append(line)
        except OSError:
            os.ftruncate(self.files[0].descriptor, before)
            self.files[0].size = before
            raise


def read_mirrored(place: Path) -> list[Point]:
    """Read the longer file."""
    contents = [(place / f"{side}.log").read_bytes() for side in ("left", "right")]
    content = max((content[: content.rfind(b"\n") + 1] for content in contents), key=len)
    return [unpack(line) for line in content.splitlines()]


class LatchingSink(CorrectSink):
    """A buffered text file that is flushed after each point, and takes nothing more after its first failure."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = (place / "points.log").open("x", encoding="ascii", newline="\n")
        self.failed: OSError | None = None

    def store(self, point: Point) -> None:
        """Store one point."""
        if self.failed is not None:
            raise self.failed
        try:
            self.file.write(pack(point).decode("ascii") + "\n")
            self.file.flush()
        except OSError as error:
            self.failed = error
            raise

    def settle(self) -> None:
        """Hand the store to the disk."""
        if self.failed is not None:
            raise self.failed
        os.fsync(self.file.fileno())

    def finish(self) -> None:
        """Finish the store."""
        if self.failed is None:
            self.file.close()
            return
        # What the buffer still holds was refused; it must not reach the file now.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.file.fileno())
        os.close(null)
        self.file.close()


def read_log(place: Path) -> list[Point]:
    """Read whole lines."""
    content = (place / "points.log").read_bytes()
    return [unpack(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


class ScalarsOnlySink(CorrectSink):
    """Scalars and nothing else, as a line of words."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.file = WholeFile(place / "points.log")

    def store(self, point: Point) -> None:
        """Store one point."""
        self.file.append(pack(point) + b"\n")

    def finish(self) -> None:
        """Finish the store."""
        self.file.close()

    def capabilities(self) -> Any:
        """Return the words."""
        return ("scalar",)


for _name in ("histogram", "text", "image", "graph", "metadata", "event", "embedding"):
    # The methods of the other words do not exist at all.
    setattr(ScalarsOnlySink, f"emit_{_name}", None)


class ReopeningSink(CorrectSink):
    """A place may be opened again, also while it is open: lines are added by single appending writes."""

    def start(self, place: Path) -> None:
        """Make the store."""
        self.descriptor = os.open(place / "points.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def store(self, point: Point) -> None:
        """Store one point."""
        # The newline in front ends a line that another writer was killed in.
        line = b"\n" + pack(point) + b"\n"
        written = os.write(self.descriptor, line)
        if written != len(line):
            # Another writer's lines may stand behind: the torn line stays, and the reader passes over it.
            raise OSError(28, "the line was not taken whole")

    def finish(self) -> None:
        """Finish the store."""
        os.close(self.descriptor)


def read_reopened(place: Path) -> list[Point]:
    """Read whole lines and pass over torn ones."""
    points = []
    for line in (place / "points.log").read_bytes().split(b"\n"):
        try:
            points.append(unpack(line))
        except ValueError:
            continue
    return points


class PickyTagsSink(ScalarsOnlySink):
    """Tags are file names here: longer ones, and other characters, are refused at the preflight and at the emit."""

    def preflight_tags(self, tags: Any) -> None:
        """Refuse tags that cannot be carried."""
        for tag in tags:
            self._judge(tag)

    def store(self, point: Any) -> None:
        """Store one point."""
        self._judge(point.tag)
        super().store(point)

    def _judge(self, tag: str) -> None:
        if len(tag) > 200 or not tag.isascii() or not tag.isprintable() or set(tag) & set("?#%\"'`\\<>|"):
            raise Refusal("tracker_tag_unsafe", f"The tag {tag!r} is no name.", remedy="Use a plain tag.", tag=tag)


class StrictStepsSink(ScalarsOnlySink):
    """Steps of a series must rise; a point that is not further on is refused."""

    def start(self, place: Path) -> None:
        """Make the store."""
        super().start(place)
        self.last: dict[str, int] = {}

    def store(self, point: Any) -> None:
        """Store one point."""
        if point.step <= self.last.get(point.tag, -1):
            raise Refusal(
                "tracker_step_regressed", "The step does not rise.", remedy="Send rising steps.", step=point.step
            )
        super().store(point)
        self.last[point.tag] = point.step


class StoreError(Exception):
    """A refusal in the spelling of another library: the code stands in ``fields``."""

    def __init__(self, code: str, message: str, remedy: str, **fields: object) -> None:
        super().__init__(f"{code}: {message} {fields} {remedy}")
        self.fields = {"code": code, **fields}
        self.remedy = remedy


class OwnRefusalsSink(ScalarsOnlySink):
    """The refusals are of a class of its own."""

    def require_usable(self) -> None:
        """Refuse in a class of its own."""
        try:
            super().require_usable()
        except Refusal as refusal:
            raise StoreError(refusal.code, refusal.message, refusal.remedy, **refusal.fields) from None
