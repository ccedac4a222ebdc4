"""From damage and missing places to the refusals that every reader shares."""

from __future__ import annotations

from pathlib import Path

from torchlens_conformance.protocol import Refusal

from .damage import Damage

_CODES = {
    "foreign": "reader_file_foreign",
    "truncated": "reader_file_truncated",
    "corrupt": "reader_file_corrupt",
}


def damage_refusal(damage: Damage, path: Path, *, reader: str, points_before: int) -> Refusal:
    """Return the refusal for a damaged file: ``reader_file_foreign``, ``_truncated`` or ``_corrupt``.

    Its fields: ``path``, ``reader``, ``offset`` (where the damaged record starts, in bytes) and ``points_before`` (how
    many points were read before it).
    """
    remedy = {
        "foreign": f"Give {reader} a file of its own tracker.",
        "truncated": "Pass allow_torn=True to read what stands before the cut.",
        "corrupt": "Restore the file; what stands behind the damage cannot be trusted.",
    }[damage.kind]
    return Refusal(
        _CODES[damage.kind],
        f"{path.name}: {damage.detail}.",
        remedy=remedy,
        path=str(path),
        reader=reader,
        offset=damage.offset,
        points_before=points_before,
    )


def torn_text(damage: Damage, path: Path, *, size: int) -> str:
    """Say where a file is cut and how many bytes of it were not read."""
    return f"{path.name}: {damage.detail} at byte {damage.offset}; {size - damage.offset} bytes behind it were not read"


def require_present(path: Path, *, reader: str) -> None:
    """Refuse ``reader_path_missing`` when there is nothing at ``path``."""
    if not path.exists():
        raise Refusal(
            "reader_path_missing",
            f"There is nothing at {path}.",
            remedy="Give the place that the tracker wrote to.",
            path=str(path),
            reader=reader,
        )


def empty_refusal(path: Path, what: str, *, reader: str) -> Refusal:
    """Return the refusal ``reader_file_empty`` with the reason ``what``."""
    return Refusal(
        "reader_file_empty",
        f"{path}: {what}.",
        remedy="Give the place that the tracker wrote to, after it wrote something.",
        path=str(path),
        reader=reader,
    )
