"""Other spellings of capability words, for profiles that accept them (PROT-2).

A sink under such a profile is asked through a thin view that says each word as the protocol spells it; everything
else, its methods and hooks included, is the sink's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .subject import Subject


class SpelledSink:
    """A sink whose ``capabilities()`` uses the protocol's words; all other attributes are the sink's own.

    Args:
        sink: The sink.
        words: Other spellings, with the word that each stands for.
    """

    def __init__(self, sink: Any, words: Mapping[str, str]) -> None:
        self._spelled_sink = sink
        self._spelled_words = dict(words)

    def capabilities(self) -> frozenset[str]:
        """Return the sink's words, each as the protocol spells it. Clause: PROT-2."""
        return frozenset(self._spelled_words.get(word, word) for word in self._spelled_sink.capabilities())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_spelled_"):
            # Asked for while the view itself is being unpickled or copied.
            raise AttributeError(name)
        return getattr(self._spelled_sink, name)


@dataclass(frozen=True, slots=True)
class SpelledOpen:
    """Opens the subject's sink and puts the view around it; it can be pickled when ``open`` can."""

    open: Callable[[Path], Any]
    words: Mapping[str, str]

    def __call__(self, place: Path) -> Any:
        """Open a sink on ``place``."""
        sink = self.open(place)
        # An object without capabilities() must be seen as it is: that it lacks them is a finding.
        return SpelledSink(sink, self.words) if callable(getattr(sink, "capabilities", None)) else sink


def spelled(subject: Subject, words: Mapping[str, str]) -> Subject:
    """Return the subject seen through the spellings of a profile; the subject itself when there are none."""
    if not words:
        return subject
    distribution, version = subject.identity()
    return replace(subject, open=SpelledOpen(subject.open, words), distribution=distribution, version=version)
