"""Planted defects: wrong sinks and readers, one idea each, that the checks named for them must catch."""

from __future__ import annotations

from ...protocol import Refusal
from .base import Defect, PlainSink, read_plain
from .life_defects import LIFE_DEFECTS
from .payload_defects import PAYLOAD_DEFECTS
from .reader_defects import READER_DEFECTS
from .scalar_defects import SCALAR_DEFECTS
from .stream_defects import STREAM_DEFECTS
from .surface_defects import SURFACE_DEFECTS

DEFECTS: tuple[Defect, ...] = (
    *STREAM_DEFECTS,
    *SCALAR_DEFECTS,
    *PAYLOAD_DEFECTS,
    *LIFE_DEFECTS,
    *SURFACE_DEFECTS,
    *READER_DEFECTS,
)
"""Every planted defect, in the order of the kill matrix."""

_BY_ID = {defect.id: defect for defect in DEFECTS}


def get_defect(identity: str) -> Defect:
    """Return the defect of this id. Raises ``kit_defect_unknown``."""
    if identity not in _BY_ID:
        raise Refusal(
            "kit_defect_unknown",
            f"No planted defect is called {identity!r}.",
            remedy=f"Use one of {', '.join(_BY_ID)}.",
            defect=identity,
        )
    return _BY_ID[identity]


__all__ = ["DEFECTS", "Defect", "PlainSink", "get_defect", "read_plain"]
