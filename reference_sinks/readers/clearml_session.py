"""Finding and opening an offline session of ClearML: a folder, or the zip that closing makes of it (FID-1)."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from torchlens_conformance.protocol import Refusal

from .damage import Damage
from .refusing import empty_refusal, require_present

READER = "read_clearml"
METRICS, CONSOLE, TASK = "metrics.jsonl", "log.jsonl", "task.json"

_ZIP_START = b"PK\x03\x04"
_EMPTY_ZIP_START = b"PK\x05\x06"


class Session:
    """The files of one session.

    Args:
        path: The session's folder or zip.

    Raises :class:`~reference_sinks.readers.damage.Damage` for what is no session, ``reader_file_truncated`` for a cut
    zip and ``reader_file_empty`` for one without files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip = None if path.is_dir() else _open_zip(path)
        self._members = set(self._zip.namelist()) if self._zip else set()
        if not self.holds(TASK) and not self.holds(METRICS):
            raise Damage("foreign", 0, f"there is neither {TASK} nor {METRICS} in it")

    def close(self) -> None:
        """Close the zip."""
        if self._zip:
            self._zip.close()

    def holds(self, name: str) -> bool:
        """Whether there is a file ``name``, a path inside the session; one that leads out of it is never there."""
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            return False
        return name in self._members if self._zip else (self.path / name).is_file()

    def files(self, folder: str) -> list[str]:
        """Return the paths, inside the session, of all files below one of its folders, in order."""
        if self._zip:
            return sorted(name for name in self._members if name.startswith(f"{folder}/") and not name.endswith("/"))
        found = (self.path / folder).rglob("*")
        return sorted(path.relative_to(self.path).as_posix() for path in found if path.is_file())

    def content(self, name: str) -> bytes:
        """Return the bytes of the file ``name``, which must be there."""
        if self._zip is None:
            return (self.path / name).read_bytes()
        try:
            return self._zip.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            offset = self._zip.getinfo(name).header_offset
            raise Damage("corrupt", offset, f"the member {name} does not check ({error})") from None

    def task(self) -> dict[str, Any]:
        """Return what the session says about its task; empty when it says nothing.

        Raises :class:`~reference_sinks.readers.damage.Damage`: ClearML rewrites this file in place, so that it can be
        cut.
        """
        if not self.holds(TASK):
            return {}
        content = self.content(TASK)
        try:
            task = json.loads(content)
        except (ValueError, RecursionError):
            kind = "corrupt" if content.rstrip().endswith(b"}") else "truncated"
            raise Damage(kind, 0, f"{TASK} does not parse") from None
        if not isinstance(task, dict) or "id" not in task:
            raise Damage("foreign", 0, f"{TASK} describes no task")
        return task

    def closed(self, task: dict[str, Any]) -> bool | None:
        """Whether the task was closed, which is when the zip is made; None when that cannot be seen.

        Args:
            task: What :meth:`task` returned. It names the place of the folder: only there does a missing zip mean
                anything.
        """
        if self._zip or _zip_of(self.path).is_file():
            return True
        place = task.get("offline_folder")
        return False if isinstance(place, str) and Path(place) == self.path.resolve() else None


def find_session(path: Path) -> Path:
    """Return the folder or zip of the session at ``path``, or of the only one below it.

    A folder counts before its zip. Raises ``reader_path_missing``, ``reader_file_empty`` and ``reader_path_ambiguous``.
    """
    require_present(path, reader=READER)
    if path.is_file():
        if path.stat().st_size == 0:
            raise empty_refusal(path, "the file has no bytes", reader=READER)
        return path
    if any((path / name).is_file() for name in (TASK, METRICS, CONSOLE)):
        return path
    for pattern in ("offline-*", "offline/offline-*", "cache/offline/offline-*"):
        found: dict[str, Path] = {}
        for place in sorted(path.glob(pattern)):
            if place.is_dir() or (place.suffix == ".zip" and place.is_file()):
                found.setdefault(place.stem if place.suffix == ".zip" else place.name, place)
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            raise Refusal(
                "reader_path_ambiguous",
                f"{path} holds {len(found)} sessions.",
                remedy="Give the folder of one session.",
                path=str(path),
                reader=READER,
                sessions=sorted(found),
            )
    raise empty_refusal(path, "no offline session of ClearML in this folder", reader=READER)


def _zip_of(folder: Path) -> Path:
    # Not with_suffix: a session's name may hold a dot.
    return folder.with_name(f"{folder.name}.zip")


def _open_zip(path: Path) -> zipfile.ZipFile:
    with path.open("rb") as stream:
        start = stream.read(4)
    if start == _EMPTY_ZIP_START:
        raise empty_refusal(path, "the zip holds no file", reader=READER)
    if start != _ZIP_START[: len(start)]:
        raise Damage("foreign", 0, "the file is no zip")
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise Refusal(
            "reader_file_truncated",
            f"{path.name}: the directory at the end of the zip cannot be read ({error}).",
            remedy="Give the folder of the session, or the whole zip; a zip without its end cannot be read.",
            path=str(path),
            reader=READER,
            offset=path.stat().st_size,
            points_before=0,
        ) from None
