"""Reading TensorBoard event files: every event, no sampling, every checksum checked (TB-1, FID-1).

The records are framed by this package and parsed with the messages that ship with TensorBoard; neither TensorFlow nor
TensorBoard's own loader, which keeps a sample, is used.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point, Refusal

from ..graph_def import graph_from_proto
from ..packages import require_package
from .damage import Damage
from .record_framing import records
from .refusing import damage_refusal, empty_refusal, require_present, torn_text
from .result import ReadResult, Unplaced
from .tensorboard_values import ValueReader

READER = "read_tensorboard"
_VERSION = re.compile(r"brain\.Event:(\d+)")
_LATEST_VERSION = 2


def read_tensorboard(path: str | os.PathLike[str], *, allow_torn: bool = False) -> ReadResult:
    """Read every event of a logdir or of one event file, in stored order.

    In a folder, files with ``tfevents`` in their name are read: first its own in the order of their names (numbers in
    names count as numbers), then those of its sub-folders in the same way. A sub-folder is a run of its own in
    TensorBoard; tags are left as they are stored, and a note says which points come from which sub-folder.

    Placed: scalars (plain and tensor form), histograms (proto and tensor form), texts (the suffix ``/text_summary``
    that torch adds is removed, and noted), PNG images, graphs. File versions and session logs are neither points nor
    unplaced. Everything else that was stored is in ``unplaced``; a histogram whose counts are not integers keeps
    ``tag``, ``step``, ``counts``, ``edges`` and ``summary`` there.

    What the format cannot say: the leftmost edge of a proto histogram. An empty first bucket makes it explicit;
    otherwise it is ``min`` where that lies below the first limit, else the next float64 below that limit; a note counts
    both. A summary field that is unset reads as 0 in the format; a zero that the buckets contradict is left out.

    Args:
        path: A logdir or an event file.
        allow_torn: Read a file that ends inside a record up to its last whole one, and say so in ``torn``.

    Raises ``reader_path_missing``, ``reader_file_empty`` (no bytes, or a folder without event files),
    ``reader_file_foreign``, ``reader_file_truncated`` and ``reader_file_corrupt`` (with ``offset`` and
    ``points_before``), ``reader_version_unsupported``, ``tracker_sink_unavailable``. ``closed`` is always None: the
    format has no footer.

    Clause: TB-1, FID-1, POINT-2.
    """
    root = Path(path)
    require_present(root, reader=READER)
    points: list[Point] = []
    unplaced: list[Unplaced] = []
    torn: list[str] = []
    notes: Counter[str] = Counter()
    spans: dict[str, list[int]] = {}
    plugins: dict[Path, dict[str, str]] = {}
    for file in _event_files(root, recursive=True):
        reader = ValueReader(plugins.setdefault(file.parent, {}), points, unplaced, notes)
        before = len(points)
        try:
            for offset, event in _events(file):
                _read_event(event, f"{file.name}@{offset}", reader)
        except Damage as damage:
            if damage.kind != "truncated" or not allow_torn:
                raise damage_refusal(damage, file, reader=READER, points_before=len(points)) from None
            torn.append(torn_text(damage, file, size=file.stat().st_size))
        if root.is_dir() and file.parent != root:
            spans.setdefault(file.parent.relative_to(root).as_posix(), [before, 0])[1] = len(points)
    told = [f"{text}: {count}" for text, count in sorted(notes.items())]
    told += [
        f"points {first} to {end - 1} come from the sub-folder {name!r}"
        for name, (first, end) in spans.items()
        if end > first
    ]
    return ReadResult(
        tuple(points), tuple(unplaced), torn="; ".join(torn) or None, closed=None, reader=READER, notes=tuple(told)
    )


def largest_step(logdir: str | os.PathLike[str]) -> int | None:
    """Return the largest step of any summary in the event files of ``logdir`` itself, or None.

    Torn tails are passed over. Raises ``reader_file_corrupt``, ``reader_file_foreign`` and
    ``reader_version_unsupported``. Clause: PROT-11.
    """
    root = Path(logdir)
    largest = None
    for file in _event_files(root, recursive=False) if root.is_dir() else ():
        try:
            for _, event in _events(file):
                if event.HasField("summary") and (largest is None or event.step > largest):
                    largest = event.step
        except Damage as damage:
            if damage.kind != "truncated":
                raise damage_refusal(damage, file, reader="last_step", points_before=0) from None
    return largest


def _event_files(root: Path, *, recursive: bool) -> list[Path]:
    if root.is_file():
        return [root]
    found = [file for file in root.glob("**/*" if recursive else "*") if "tfevents" in file.name and file.is_file()]
    if not found and recursive:
        raise empty_refusal(root, "no event file in this folder", reader=READER)
    return sorted(found, key=lambda file: (_natural(file.parent.relative_to(root).as_posix()), _natural(file.name)))


def _natural(name: str) -> list[tuple[int, str]]:
    # Writers number their files without padding, so file 10 must not come before file 9.
    parts = re.split(r"([0-9]+)", "" if name == "." else name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _events(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield offset and Event of every record; the first must say its version."""
    event_class: Callable[[], Any] = require_package("tensorboard.compat.proto.event_pb2", extra="tensorboard").Event
    decode_error = require_package("google.protobuf.message", extra="tensorboard").DecodeError
    if file.stat().st_size == 0:
        raise empty_refusal(file, "the event file has no bytes", reader=READER)
    with file.open("rb") as stream:
        for offset, data in records(stream):
            event = event_class()
            try:
                event.ParseFromString(data)
            except decode_error:
                raise Damage("foreign" if offset == 0 else "corrupt", offset, "a record holds no event") from None
            if offset == 0:
                _require_version(event.file_version, file)
            yield offset, event


def _require_version(text: str, file: Path) -> None:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise Damage("foreign", 0, "the first record does not say the version of an event file")
    if int(match[1]) > _LATEST_VERSION:
        raise Refusal(
            "reader_version_unsupported",
            f"{file.name} is of version {text}.",
            remedy=f"Read it with a later release; this one knows version {_LATEST_VERSION}.",
            path=str(file),
            reader=READER,
            version=text,
        )


def _read_event(event: Any, where: str, reader: ValueReader) -> None:
    kind = event.WhichOneof("what")
    if kind == "summary":
        for value in event.summary.value:
            reader.read(value, event.step, where)
    elif kind == "graph_def":
        try:
            reader.points.append(graph_from_proto(event.graph_def))
        except ValueError as error:
            reader.unplaced.append(Unplaced(where, "a graph that does not parse", {"error": str(error)}))
    elif kind not in ("file_version", "session_log", None):
        reader.unplaced.append(Unplaced(where, f"an event of kind {kind}", {"step": event.step}))
