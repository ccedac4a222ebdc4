"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import pickle
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` beside ``path`` and put it in place in one step."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_pickle(path: Path, value: object) -> None:
    """Write a pickle, whole or not at all."""
    write_bytes(path, pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
