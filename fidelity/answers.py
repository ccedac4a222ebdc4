"""What a tracker itself does with a point that our sink refuses, in a few words that stand among a cell's numbers.

The words are the same from run to run: no ids, paths, times or messages are in them (FID-1).
"""

from __future__ import annotations

from torchlens_conformance.protocol import ScalarPoint
from torchlens_conformance.protocol.compare import same_value

from .probes import shortened

NOT_ASKED = "not asked"
"""The tracker itself was not given the point."""

SAME = "stores the same"
NOTHING = "stores nothing"
TAKES = "takes it"
"""Closed answers; the last one says that it raised nothing, and was not read back."""

STORES = "stores "
RAISES = "raises "
"""How the other answers begin."""

WARNED = ", with a warning"
"""How an answer ends where the tracker wrote a line that a person sees."""


def stored_answer(sent: ScalarPoint, stored: ScalarPoint | None, *, warned: bool = False) -> str:
    """Say what became of a number that was given by hand.

    Args:
        sent: The number.
        stored: What the store holds of it, or None.
        warned: Whether the tracker wrote a line that a person sees.
    """
    if stored is None:
        return NOTHING + WARNED * warned
    changed = []
    if not same_value(sent.value, stored.value):
        changed.append(repr(stored.value))
    if sent.step != stored.step:
        changed.append(f"step {stored.step}")
    if sent.tag != stored.tag:
        changed.append(f"the name {shortened(stored.tag)!r}")
    return f"{STORES}{' and '.join(changed)}{WARNED * warned}" if changed else SAME


def raised_answer(error: Exception) -> str:
    """Say what was raised: the kind alone, since messages name tags, paths and times."""
    return f"{RAISES}{type(error).__name__}"
