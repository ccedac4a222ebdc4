"""Finding and opening what an offline experiment of Comet left: an archive, or the folder behind it (COMET-1)."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torchlens_conformance.protocol import Refusal

from .damage import Damage
from .refusing import empty_refusal, require_present

READER = "read_comet"

MESSAGES = "messages.json"
"""The file of an experiment's messages, one a line."""

FACTS = "experiment.json"
"""The file about the experiment itself; Comet writes it when the experiment ends."""

_EMPTY_ZIP = b"PK\x05\x06"
_BROKEN_MEMBER = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class CometStore:
    """The files of one experiment.

    Args:
        path: Its archive, or a folder with ``messages.json``.

    Raises :class:`~reference_sinks.readers.damage.Damage` for a file that is no archive, or none of Comet's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive: zipfile.ZipFile | None = None
        if not path.is_dir():
            self._archive = _open_archive(path)
        if not self.holds(MESSAGES):
            self.close()
            raise Damage("foreign", 0, f"there is no {MESSAGES} in it")

    def close(self) -> None:
        """Close the archive, if it is one."""
        if self._archive is not None:
            self._archive.close()

    def holds(self, name: str) -> bool:
        """Whether there is a file ``name`` at the top of the store; a path that leads elsewhere is never there."""
        if not name or "/" in name or name in (".", ".."):
            return False
        if self._archive is not None:
            return name in self._archive.NameToInfo
        return (self.path / name).is_file()

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        """Open the file ``name``, which must be there, for reading.

        Raises :class:`~reference_sinks.readers.damage.Damage` when a member of the archive does not check.
        """
        if self._archive is None:
            with (self.path / name).open("rb") as file:
                yield file
            return
        try:
            with self._archive.open(name) as member:
                yield member
        except _BROKEN_MEMBER as error:
            offset = self._archive.getinfo(name).header_offset
            raise Damage("corrupt", offset, f"the member {name} does not check ({error})") from None

    def content(self, name: str) -> bytes:
        """Return the bytes of the file ``name``."""
        with self.reading(name) as file:
            return file.read()

    def facts(self) -> dict[str, Any] | None:
        """Return what Comet wrote about the experiment when it ended, or None when it never did."""
        if not self.holds(FACTS):
            return None
        try:
            facts = json.loads(self.content(FACTS))
        except (ValueError, RecursionError):
            return None
        return facts if isinstance(facts, dict) else None


def find_store(path: Path) -> Path:
    """Return the archive or folder of the experiment at ``path``, or of the only one in the folder ``path``.

    The archive that Comet makes when an experiment starts is empty until it ends, and then does not count.

    Raises ``reader_path_missing``, ``reader_file_empty`` and ``reader_path_ambiguous``.
    """
    require_present(path, reader=READER)
    if path.is_file():
        if path.stat().st_size == 0 or _is_empty(path):
            raise empty_refusal(path, _never_ended(), reader=READER)
        return path
    if (path / MESSAGES).is_file():
        return path
    found = stores_in(path)
    if len(found) == 1:
        return found[0]
    if found:
        fields = {"path": str(path), "reader": READER, "experiments": [store.name for store in found]}
        remedy = "Give the archive or the folder of one experiment."
        raise Refusal("reader_path_ambiguous", f"{path} holds {len(found)} experiments.", remedy=remedy, **fields)
    waits = any(_is_empty(file) for file in path.glob("*.zip"))
    what = _never_ended() if waits else "no offline experiment of Comet in this folder"
    raise empty_refusal(path, what, reader=READER)


def stores_in(path: Path) -> list[Path]:
    """Return the archives with messages and the folders with messages directly in the folder ``path``, oldest first."""
    stores = [folder.parent for folder in path.glob(f"*/{MESSAGES}")]
    stores += [file for file in path.glob("*.zip") if file.is_file() and _holds_messages(file)]
    return sorted(stores, key=_age)


def _age(store: Path) -> tuple[int, str]:
    # The folder's own time moves with every file in it, and an archive is written when the experiment ends.
    file = store / MESSAGES if store.is_dir() else store
    return file.stat().st_mtime_ns, store.name


def _never_ended() -> str:
    return (
        "the archive is empty, as it is until the experiment ends; if it never did, its messages lie in the folder "
        "that Comet made among the system's temporary files (experiment.tmpdir)"
    )


def _is_empty(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == _EMPTY_ZIP


def _holds_messages(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return MESSAGES in archive.NameToInfo
    except (zipfile.BadZipFile, OSError):
        # Something that cannot be opened is not passed over: reading it says what is wrong.
        return not _is_empty(file)


def _open_archive(path: Path) -> zipfile.ZipFile:
    with path.open("rb") as stream:
        if not stream.read(2).startswith(b"PK"):
            raise Damage("foreign", 0, "the file is no zip")
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        # Its directory stands at its end, so nothing of a cut archive can be found.
        raise Damage("truncated", path.stat().st_size, f"the archive has no directory at its end ({error})") from None
