"""Files that rest on each other are written together or not at all, where no folder is made (FID-3)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchlens_conformance.protocol import Refusal

from . import files


def probe(paths: Sequence[Path]) -> None:
    """Try whether each file can be written, before anything is measured; nothing is left behind.

    Raises ``fidelity_output_invalid`` for a folder that is missing or takes no file, for what is no file or may not be
    written, and for one file that is named twice.
    """
    for number, path in enumerate(paths):
        try:
            final = path.resolve()
            reason = "it is named twice" if final in [p.resolve() for p in paths[:number]] else _fault(final)
        except (OSError, RuntimeError) as error:
            raise _refused(path, _words(error)) from error
        if reason is not None:
            raise _refused(path, reason)


def write_together(texts: Mapping[Path, str]) -> None:
    """Write every text whole, or leave every file as it was; links are followed and permissions kept.

    Raises ``fidelity_output_invalid``.
    """
    try:
        files.write_together({path: text.encode("utf-8") for path, text in texts.items()})
    except OSError as error:
        raise _refused(Path(error.filename or next(iter(texts))), _words(error)) from error


def _fault(final: Path) -> str | None:
    if not final.parent.is_dir():
        return "its folder is not there"
    if final.exists() and not final.is_file():
        return "it is no file"
    if final.exists() and not os.access(final, os.R_OK | os.W_OK):
        return "it may not be read and written"
    with tempfile.NamedTemporaryFile(dir=final.parent):
        return None


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _refused(path: Path, reason: str) -> Refusal:
    return Refusal(
        "fidelity_output_invalid",
        f"A file cannot be written, so nothing was: {reason}.",
        remedy="Name files in folders that exist and that you may write to.",
        path=str(path),
    )
