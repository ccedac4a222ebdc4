"""The specification as data: every rule with its id, whom it binds and whether it is checked yet.

Reads one JSON file, when it is first asked; no torch, no numpy, no tracker.
"""

from __future__ import annotations

from .catalogue import clause, clauses, families, select_clauses
from .citations import cited_clauses
from .model import LEVELS, ORIGINS, PARTIES, STATUSES, Clause
from .render import render

__all__ = [
    "LEVELS",
    "ORIGINS",
    "PARTIES",
    "STATUSES",
    "Clause",
    "cited_clauses",
    "clause",
    "clauses",
    "families",
    "render",
    "select_clauses",
]
