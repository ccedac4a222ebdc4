"""Opening MLflow's sqlite file for reading only, also where its writer was killed (MLFLOW-1)."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from torchlens_conformance.protocol import Refusal

from .refusing import empty_refusal, require_present

READER = "read_mlflow"

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_BESIDE = ("-journal", "-wal")
# Files in which sqlite keeps what is not in the database yet; shared memory (-shm) is made anew.

_NEEDED = {
    "runs": {"run_uuid", "status", "artifact_uri", "lifecycle_stage"},
    "metrics": {"key", "value", "is_nan", "step", "run_uuid"},
    "params": {"key", "value", "run_uuid"},
    "tags": {"key", "value", "run_uuid"},
}

_ROLLED_BACK = "a transaction had not ended; it was taken back"


def find_database(place: str | os.PathLike[str]) -> Path:
    """Return the database at a file's own path, or in a folder with exactly one.

    Raises ``reader_path_missing``, ``reader_path_ambiguous``, ``reader_file_empty``, ``reader_file_foreign`` and
    ``reader_file_truncated``. Clause: MLFLOW-1.
    """
    path = Path(place)
    require_present(path, reader=READER)
    if path.is_file():
        _require_sqlite(path)
        return path
    found = sorted(file for file in path.iterdir() if file.is_file() and _begins(file) == _MAGIC)
    if len(found) > 1:
        raise Refusal(
            "reader_path_ambiguous",
            f"{path} holds {len(found)} databases.",
            remedy="Give the file of one database.",
            path=str(path),
            reader=READER,
            files=[file.name for file in found],
        )
    if not found:
        raise empty_refusal(path, "no sqlite database in this folder; MLflow's file store is not read", reader=READER)
    _require_sqlite(found[0])
    return found[0]


@contextmanager
def opened(file: Path) -> Iterator[tuple[sqlite3.Connection, str | None]]:
    """Open a database; yield a connection, and what is torn about it.

    A transaction that a killed writer left is taken back in a copy: a reader writes nothing. What is no database of
    MLflow's, or damaged, is refused, here and inside the ``with``. Clause: MLFLOW-1.
    """
    try:
        with closing(_connect(file)) as database:
            try:
                _require_tables(database, file)
            except sqlite3.OperationalError:
                # Reading only, sqlite cannot take back what a killed writer left.
                with _copied(file) as copy, closing(_connect(copy, writable=True)) as database:
                    _require_tables(database, file)
                    yield database, f"{file.name}: {_ROLLED_BACK}"
                return
            yield database, None
    except sqlite3.DatabaseError as error:
        raise _refusal("reader_file_corrupt", file, str(error), "Restore the file from a copy.") from error


def _connect(file: Path, *, writable: bool = False) -> sqlite3.Connection:
    mode = "rw" if writable else "ro"
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=30)


@contextmanager
def _copied(file: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="torchlens-mlflow-") as folder:
        for ending in ("", *_BESIDE):
            source = file.with_name(file.name + ending)
            if source.exists():
                shutil.copyfile(source, Path(folder, source.name))
        yield Path(folder, file.name)


def _require_tables(database: sqlite3.Connection, file: Path) -> None:
    for table, needed in _NEEDED.items():
        columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        if not columns:
            raise _refusal(
                "reader_file_foreign", file, f"there is no table {table}", f"Give {READER} a database of MLflow's."
            )
        if not needed <= columns:
            raise _refusal(
                "reader_version_unsupported",
                file,
                f"the table {table} lacks {', '.join(sorted(needed - columns))}",
                "Read it with a release that knows this version of MLflow's tables.",
            )


def _require_sqlite(file: Path) -> None:
    size = file.stat().st_size
    if not size:
        raise empty_refusal(file, "the file has no bytes", reader=READER)
    begin = _begins(file)
    if begin != _MAGIC:
        kind = "truncated" if _MAGIC.startswith(begin) else "foreign"
        raise _refusal(f"reader_file_{kind}", file, "no sqlite database", f"Give {READER} a database of MLflow's.")
    with file.open("rb") as stream:
        header = stream.read(_HEADER)
    # A page of 65536 bytes is written as 1. The count of pages holds when both counters of changes agree.
    page = int.from_bytes(header[16:18], "big")
    pages, counted = int.from_bytes(header[28:32], "big"), header[24:28] == header[92:96]
    whole = pages * (65536 if page == 1 else page) if counted else 0
    if len(header) < _HEADER or (size < whole and not file.with_name(file.name + _BESIDE[0]).exists()):
        raise _refusal(
            "reader_file_truncated", file, f"{size} of {whole} bytes are there", "Restore the file from a copy."
        )


def _begins(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC))
    except OSError:
        return b""


def _refusal(code: str, file: Path, what: str, remedy: str) -> Refusal:
    return Refusal(code, f"{file.name}: {what}.", remedy=remedy, path=str(file), reader=READER)
