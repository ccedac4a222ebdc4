"""Reading wandb's offline file: every history row, every checksum checked (WANDB-1, FID-1).

wandb ships no reader for it; framing and records are read by this package, so wandb need not be installed, and nothing
waits for a writer.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from torchlens_conformance.protocol import Point, Refusal

from .damage import Damage
from .log_framing import VERSION, file_version, last_records, records
from .refusing import damage_refusal, empty_refusal, require_present, torn_text
from .result import ReadResult, Unplaced
from .wandb_history import HistoryReader
from .wandb_records import NotARecord, WandbRecord, parse_record

READER = "read_wandb"

_START_UP_COMPONENTS = ("featurechecker", "runupserter", "wandb-core", "stream", "gpu", "monitor", "system")
# Older versions say this without naming the component.
_NO_FEATURES = "skipping feature loading"
_MOST_NOTICES = 50


def read_wandb(path: str | os.PathLike[str], *, allow_torn: bool = False) -> ReadResult:
    """Read every history row of an offline run, in stored order.

    A row holds what was logged at one step. wandb stores the items of a row in an order of its own that differs from
    run to run: the order of points inside a step is not the order in which they were sent, and a tag logged twice at
    one step is there once, with the last value.

    Placed: numbers (integers of 64 bits as Python ints; the bare words NaN, Infinity and -Infinity as floats; a whole
    float such as 3.0 is stored as ``3`` and reads as an int, -0.0 as a float), texts (a text "NaN" stays a text),
    histograms (with edges, or packed, which a note counts). ``global_step``, which wandb's TensorBoard relay adds, is
    an ordinary scalar. The keys ``_step``, ``_timestamp``, ``_runtime`` and ``_wandb`` are wandb's own and no points.
    Everything else in a row is in ``unplaced``; a histogram whose counts are not integers keeps ``tag``, ``step``,
    ``counts`` and ``edges`` there.

    Args:
        path: A ``.wandb`` file, the folder of an offline run, or a ``wandb`` folder (or its parent) with exactly one.
        allow_torn: Read a file that ends inside a record up to its last whole one, and say so in ``torn``.

    ``closed`` is whether the exit record is there. wandb keeps up to 32 KiB in memory until the run finishes, so a run
    that was killed usually ends at a block border: nothing is torn, and ``closed`` is False. Version 0.19 writes the
    exit record before rows that its relay adds late, so there ``closed`` does not promise all of them.

    Raises ``reader_path_missing``, ``reader_file_empty`` (no bytes, or a folder without a run),
    ``reader_file_foreign``, ``reader_file_truncated`` and ``reader_file_corrupt`` (with ``offset`` and
    ``points_before``), ``reader_version_unsupported``. A folder with several runs raises ``reader_path_ambiguous``.

    Clause: WANDB-1, FID-1.
    """
    file = find_run_file(path)
    points: list[Point] = []
    unplaced: list[Unplaced] = []
    notes: Counter[str] = Counter()
    history = HistoryReader(points, unplaced, notes)
    closed, torn = False, None
    with file.open("rb") as stream:
        try:
            _require_version(stream, file)
            for offset, record in _records(stream):
                closed = closed or record.is_exit
                if record.history is not None:
                    history.read(record.history, f"{file.name}@{offset}")
                elif record.follows_tensorboard:
                    notes["TensorBoard folders that wandb's relay was told to follow"] += 1
                _note_event_files(record.files, notes)
        except Damage as damage:
            if damage.kind != "truncated" or not allow_torn:
                raise damage_refusal(damage, file, reader=READER, points_before=len(points)) from None
            torn = torn_text(damage, file, size=file.stat().st_size)
    told = tuple(f"{text}: {count}" for text, count in sorted(notes.items()))
    return ReadResult(tuple(points), tuple(unplaced), torn=torn, closed=closed, reader=READER, notes=told)


def read_wandb_notices(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return what wandb's own log says about data that it did not take, which its user never sees.

    These are the warnings and errors of ``logs/debug-internal.log`` beside the run's file, without those about its
    start; equal messages are one line with the fields of the first and a count, and there are at most 50 lines. No log,
    no lines.

    Args:
        path: As for :func:`read_wandb`.

    Raises ``reader_path_missing``, ``reader_file_empty`` and ``reader_file_foreign``. Clause: FID-1, WANDB-1.
    """
    log = find_run_file(path).parent / "logs" / "debug-internal.log"
    if not log.is_file():
        return ()
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        entry = _log_entry(line)
        if entry is None:
            continue
        key = f"{entry['level']} {entry['msg']}"
        counts[key] += 1
        fields = {name: value for name, value in entry.items() if name not in ("level", "msg", "time")}
        first.setdefault(key, f" {json.dumps(fields, ensure_ascii=False)}" if fields else "")
    lines = [f"{key}{first[key]}{f' ({count} times)' if count > 1 else ''}" for key, count in counts.items()]
    if len(lines) > _MOST_NOTICES:
        lines[_MOST_NOTICES - 1 :] = [f"and {len(lines) - _MOST_NOTICES + 1} further kinds of notices"]
    return tuple(lines)


def wandb_run_has_ended(path: str | os.PathLike[str]) -> bool:
    """Whether the exit record stands at the end of a run's file, which is then whole; a look at its last blocks only.

    ``run.finish()`` may return before wandb's service has written the end (measured with 0.30.0), and the service
    ends with the process that started it: whoever ends that right after ``finish`` loses the last rows. Wait for this.

    Args:
        path: As for :func:`read_wandb`.

    Raises ``reader_path_missing``, ``reader_file_empty`` and ``reader_path_ambiguous``. Clause: WANDB-1, PROT-6.
    """
    file = find_run_file(path)
    with file.open("rb") as stream:
        for data in last_records(stream, size=file.stat().st_size):
            try:
                if parse_record(data).is_exit:
                    return True
            except NotARecord:
                return False
    return False


def find_run_file(path: str | os.PathLike[str]) -> Path:
    """Return the ``.wandb`` file at a file's own path, in a run's folder, or in a folder with exactly one run.

    Raises ``reader_path_missing``, ``reader_file_empty`` and ``reader_path_ambiguous``. Clause: WANDB-1.
    """
    root = Path(path)
    require_present(root, reader=READER)
    if root.is_file():
        return root
    for pattern in ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb"):
        found = sorted(file for file in root.glob(pattern) if file.is_file())
        if len(found) == 1:
            return found[0]
        if found:
            raise Refusal(
                "reader_path_ambiguous",
                f"{root} holds {len(found)} runs.",
                remedy="Give the folder of one run.",
                path=str(root),
                reader=READER,
                runs=[file.parent.name for file in found],
            )
    raise empty_refusal(root, "no run of wandb in this folder", reader=READER)


def _require_version(stream: BinaryIO, file: Path) -> None:
    if file.stat().st_size == 0:
        raise empty_refusal(file, "the file has no bytes", reader=READER)
    version = file_version(stream)
    if version != VERSION:
        raise Refusal(
            "reader_version_unsupported",
            f"{file.name} is of version {version}.",
            remedy=f"Read it with a later release; this one knows version {VERSION}.",
            path=str(file),
            reader=READER,
            version=version,
        )


def _records(stream: BinaryIO) -> Iterator[tuple[int, WandbRecord]]:
    for offset, data in records(stream):
        try:
            yield offset, parse_record(data)
        except NotARecord:
            raise Damage("corrupt", offset, "a record does not parse") from None


def _note_event_files(files: Sequence[str], notes: Counter[str]) -> None:
    for path in files:
        if "tfevents" in path:
            notes["event files that wandb keeps among the files of the run"] += 1


def _log_entry(line: str) -> dict[str, Any] | None:
    """Return a warning or an error that may concern data, or None."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("level") not in ("WARN", "ERROR"):
        return None
    message = entry.get("msg")
    if not isinstance(message, str) or message.split(":")[0] in _START_UP_COMPONENTS or _NO_FEATURES in message:
        return None
    return entry
