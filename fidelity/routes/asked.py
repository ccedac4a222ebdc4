"""Asking a tracker itself about a point that our sink refuses (FID-1).

So no refusal rests on our word alone, and a person who logs without our sink learns what happens there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..received import Refused


def answered(item: Refused, tracker: str, answer: str, *, at_length: str = "") -> Refused:
    """Return a refused point with the tracker's own answer.

    Args:
        item: The point.
        tracker: The tracker's name.
        answer: What it does, in few words.
        at_length: What it said; our sink's reason is then left out, being the same.
    """
    reason = f"{tracker} itself: {at_length}" if at_length else f"{tracker} itself {answer}; ours: {item.reason}"
    return replace(item, reason=reason, itself=answer)


class Heard(logging.Handler):
    """Whether a tracker logged a line at a level that is shown unless somebody turns it off."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.anything = False

    def emit(self, record: logging.LogRecord) -> None:
        """Note that there was a line."""
        self.anything = True


@contextmanager
def hearing(logger: str) -> Iterator[Heard]:
    """Listen to a tracker's logger, also where its lines are turned off: our routes do that to Comet's."""
    heard, listened = Heard(), logging.getLogger(logger)
    level = listened.level
    listened.setLevel(min(listened.getEffectiveLevel(), logging.WARNING))
    listened.addHandler(heard)
    try:
        yield heard
    finally:
        listened.removeHandler(heard)
        listened.setLevel(level)
