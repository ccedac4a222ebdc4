"""One clause of the specification, and the closed words that describe it."""

from __future__ import annotations

import re
from dataclasses import dataclass

LEVELS = ("must", "should")
"""How binding a clause is."""

ORIGINS = ("seed-A", "seed-B", "beyond")
"""Where a clause comes from: the trackers document (A), the data types document (B), or beyond both."""

PARTIES = ("sink", "engine", "reader", "emitter", "measurement")
"""Whom a clause can bind.

``sink`` writes points into a store; ``engine`` watches a model; ``reader`` reads a store back; ``emitter`` is whatever
hands points to sinks, the engine included; ``measurement`` is certification and the fidelity table.
"""

STATUSES = ("planned", "checked")
"""Whether tests hold a clause already (``checked``) or not yet (``planned``)."""

_ID = re.compile(r"([A-Z]{2,})-(0|[1-9][0-9]*)")
_SPACES = re.compile(r"\s\s|[^\S ]")


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule of the specification.

    Raises ``ValueError`` for a field outside its closed words or format: the catalogue ships with the package, so a bad
    entry is a bug of ours and not a refusal.

    Args:
        id: Family in capitals, hyphen, number: ``JSONL-2``. Number 0 is a rule that the specification states without
            a number: a section's table, or a sentence that holds for the whole section.
        rule: What holds, on one line, ending with a full stop; code stands in backticks.
        level: One of :data:`LEVELS`.
        origin: One of :data:`ORIGINS`.
        binds: At least one of :data:`PARTIES`, each once.
        status: One of :data:`STATUSES`.
    """

    id: str
    rule: str
    level: str
    origin: str
    binds: tuple[str, ...]
    status: str

    def __post_init__(self) -> None:
        for name in ("id", "rule", "level", "origin", "status"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"clause {self.id!r}: {name} is not text")
        if _ID.fullmatch(self.id) is None:
            raise ValueError(f"clause id {self.id!r} is not FAMILY-NUMBER")
        if _SPACES.search(self.rule) or self.rule != self.rule.strip() or not self.rule.endswith("."):
            raise ValueError(f"clause {self.id}: the rule is not one tidy line that ends with a full stop")
        for name, words in (("level", LEVELS), ("origin", ORIGINS), ("status", STATUSES)):
            if getattr(self, name) not in words:
                raise ValueError(f"clause {self.id}: {name} {getattr(self, name)!r} is none of {', '.join(words)}")
        if not isinstance(self.binds, tuple) or not self.binds or len(set(self.binds)) != len(self.binds):
            raise ValueError(f"clause {self.id}: binds is not a tuple of distinct parties with at least one")
        strangers = [party for party in self.binds if party not in PARTIES]
        if strangers:
            raise ValueError(f"clause {self.id}: binds {strangers!r}, which are none of {', '.join(PARTIES)}")

    @property
    def family(self) -> str:
        """The part of the id before the hyphen: ``JSONL``."""
        return self.id.rpartition("-")[0]

    @property
    def number(self) -> int:
        """The part of the id after the hyphen."""
        return int(self.id.rpartition("-")[2])
