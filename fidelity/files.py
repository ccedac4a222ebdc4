"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` beside ``path`` and put it in place in one step."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write every content whole, or leave every file as it was; links are followed and permissions kept.

    Only a machine that stops between two renamings can leave the first of them done. Raises ``OSError``.
    """
    finals = {path.resolve(): content for path, content in contents.items()}
    partials = {final: final.with_name(f".{final.name}.partial") for final in finals}
    before: dict[Path, bytes | None] = {}
    try:
        for final, content in finals.items():
            partials[final].write_bytes(content)
            if final.exists():
                shutil.copymode(final, partials[final])
        for final, partial in partials.items():
            before[final] = final.read_bytes() if final.exists() else None
            os.replace(partial, final)
    except BaseException:
        _put_back(before)
        raise
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink()


def _put_back(before: Mapping[Path, bytes | None]) -> None:
    for final, content in before.items():
        with suppress(OSError):
            if content is None:
                final.unlink(missing_ok=True)
            elif final.read_bytes() != content:
                final.write_bytes(content)


def write_pickle(path: Path, value: object) -> None:
    """Write a pickle, whole or not at all."""
    write_bytes(path, pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
