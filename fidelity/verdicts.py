"""The one table of rules that turns numbers into words (FID-1). Nothing else in the project types a cell's word.

Each row of the table has its rules, tried in order; the first that holds gives the word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Numbers: TypeAlias = Mapping[str, Any]
"""The numbers of one cell by name."""

EXACT = "exact"
FAITHFUL = "faithful (float32)"
PRESERVED = "preserved"
REWRITTEN = "rewritten"
INTERPOLATED = "interpolated"
ROUNDED = "rounded"
REBINNED = "re-binned"
DROPPED_SILENTLY = "dropped silently"
DROPPED_WITH_NOTICE = "dropped with notice"
REFUSED = "refused"
NOT_CAPTURED = "not captured"
NOT_APPLICABLE = "not applicable"

WORDS = (
    EXACT,
    FAITHFUL,
    PRESERVED,
    REWRITTEN,
    INTERPOLATED,
    ROUNDED,
    REBINNED,
    DROPPED_SILENTLY,
    DROPPED_WITH_NOTICE,
    REFUSED,
    NOT_CAPTURED,
    NOT_APPLICABLE,
)
"""The closed verdict words."""

MASS_TOLERANCE = 1e-6
"""Mass counts as kept within this share: re-binning by a tracker adds up fractions in floating point."""

NOT_MEASURED = "not measured"
"""No verdict: the route crashed, hung or could not start. A table with such a cell is incomplete."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table.

    Args:
        word: The verdict.
        when: The condition over the cell's numbers.
        meaning: The condition in words, for the docs.
    """

    word: str
    when: Callable[[Numbers], bool]
    meaning: str


_GONE = (
    Rule(NOT_APPLICABLE, lambda n: n["sent"] == 0, "the route has no such thing to send"),
    Rule(REFUSED, lambda n: n["arrived"] == 0 and n["refused"] == n["sent"], "every item raised when it was sent"),
    Rule(
        DROPPED_WITH_NOTICE,
        lambda n: n["arrived"] == 0 and n["notices"] > 0,
        "nothing arrived and the tracker wrote a line about it somewhere",
    ),
    Rule(DROPPED_SILENTLY, lambda n: n["arrived"] == 0, "nothing arrived and nothing was said"),
)

_ABSENT = (
    _GONE[0],
    Rule(NOT_CAPTURED, lambda n: n["arrived"] == 0, "nothing of this kind stands in the store's own form"),
)

_VALUES = (
    Rule(EXACT, lambda n: n["value_error"] == 0, "every number that arrived has the bits that were sent"),
    Rule(
        FAITHFUL,
        lambda n: n["float32_equal"] and n["finite_kept"],
        "every number that arrived is the same float32 as what was sent",
    ),
    Rule(ROUNDED, lambda n: n["finite_kept"] and n["value_error"] <= 0.01, "off by one percent at most"),
    Rule(REWRITTEN, lambda n: True, "other numbers arrived"),
)

_STEPS = (
    Rule(PRESERVED, lambda n: n["steps_kept"] == n["arrived"], "everything that arrived carries the caller's step"),
    Rule(REWRITTEN, lambda n: True, "steps that the caller never gave arrived (see the step map)"),
)

_UNCHANGED = (
    Rule(PRESERVED, lambda n: n["unchanged"] == n["sent"], "everything arrived as it was sent"),
    Rule(
        REFUSED,
        lambda n: n["arrived"] + n["refused"] == n["sent"] and n["unchanged"] == n["arrived"],
        "some raised when they were sent, the others arrived unchanged",
    ),
    Rule(REWRITTEN, lambda n: n["unchanged"] < n["arrived"], "something arrived changed"),
    Rule(DROPPED_WITH_NOTICE, lambda n: n["notices"] > 0, "some did not arrive, and a line says so somewhere"),
    Rule(DROPPED_SILENTLY, lambda n: True, "some did not arrive, and nothing says so"),
)

RULES: Mapping[str, tuple[Rule, ...]] = {
    "scalars": _GONE + _VALUES,
    "scalar-steps": _GONE + _STEPS,
    "histogram-counts": (
        *_GONE,
        Rule(EXACT, lambda n: n["counts_l1"] == 0, "every bucket of every histogram that arrived holds what was sent"),
        Rule(
            REBINNED,
            lambda n: abs(n["mass_kept"] - 1) <= MASS_TOLERANCE,
            "the whole mass arrived in other buckets",
        ),
        Rule(INTERPOLATED, lambda n: True, "mass was lost or made up"),
    ),
    "histogram-edges": (
        *_GONE,
        Rule(EXACT, lambda n: n["edge_error_inner"] == 0 and n["edge_error_outer"] == 0, "every edge is bit-equal"),
        Rule(REWRITTEN, lambda n: n["edge_error_inner"] == 0, "inner edges are bit-equal, an outer one is made up"),
        Rule(ROUNDED, lambda n: n["edge_decimals"] is not None, "edges came back with a few decimals"),
        Rule(REBINNED, lambda n: True, "other edges came back"),
    ),
    "summary": (
        *_GONE,
        Rule(
            PRESERVED,
            lambda n: n["fields_kept"] == n["fields_sent"] and n["value_error"] == 0,
            "every field of every histogram that arrived is bit-equal",
        ),
        Rule(REWRITTEN, lambda n: n["value_error"] > 0, "a field came back with another value"),
        Rule(DROPPED_SILENTLY, lambda n: True, "fields are missing from the store"),
    ),
    "histogram-steps": _GONE + _STEPS,
    "bucket-cap": (
        *_GONE,
        Rule(PRESERVED, lambda n: n["exact"] == n["sent"], "every size came back exact"),
        Rule(REFUSED, lambda n: n["exact"] + n["refused"] == n["sent"], "sizes over the cap raised"),
        Rule(
            REBINNED,
            lambda n: n["exact"] + n["refused"] + n["rebinned"] == n["sent"],
            "sizes over the cap came back in other buckets with the whole mass",
        ),
        Rule(INTERPOLATED, lambda n: n["arrived"] == n["sent"], "sizes came back with mass lost or made up"),
        Rule(DROPPED_WITH_NOTICE, lambda n: n["notices"] > 0, "some sizes did not arrive, and a line says so"),
        Rule(DROPPED_SILENTLY, lambda n: True, "some sizes did not arrive, and nothing says so"),
    ),
    "graph": (
        *_ABSENT,
        Rule(PRESERVED, lambda n: n["unchanged"] == n["sent"], "all nodes and edges came back"),
        Rule(REWRITTEN, lambda n: True, "a graph came back with other nodes or edges"),
    ),
    "text": _GONE + _UNCHANGED,
    "nonfinite": _GONE + _UNCHANGED,
    "precision": (
        *_GONE,
        Rule(
            REFUSED,
            lambda n: n["refused"] > 0 and n["arrived"] + n["refused"] == n["sent"] and n["value_error"] == 0,
            "some raised when they were sent, the others arrived with the bits that were sent",
        ),
        *_VALUES,
    ),
    "large-steps": _GONE + _UNCHANGED,
    "tags": _GONE + _UNCHANGED,
    "delivered": (
        *_GONE,
        Rule(PRESERVED, lambda n: n["arrived"] == n["sent"] and n["extra"] == 0, "every event arrived once"),
        Rule(
            REFUSED,
            lambda n: n["arrived"] + n["refused"] == n["sent"] and n["extra"] == 0,
            "what did not arrive raised when it was sent",
        ),
        Rule(REWRITTEN, lambda n: n["arrived"] == n["sent"], "events arrived that nobody sent"),
        Rule(DROPPED_WITH_NOTICE, lambda n: n["notices"] > 0, "events are missing, and a line says so somewhere"),
        Rule(DROPPED_SILENTLY, lambda n: True, "events are missing, and nothing says so"),
    ),
    "writer-first": (
        *_ABSENT,
        Rule(PRESERVED, lambda n: n["arrived"] == n["sent"], "everything arrived all the same"),
        Rule(DROPPED_SILENTLY, lambda n: True, "only some arrived"),
    ),
    "resume": (
        Rule(NOT_APPLICABLE, lambda n: n["sent"] == 0, "a run of this tracker cannot be continued"),
        Rule(
            REFUSED,
            lambda n: (
                n["refused"] > 0
                and n["arrived"] + n["refused"] == n["sent"]
                and n["steps_kept"] == n["scalars"]
                and n["extra"] == 0
            ),
            "some raised when they were sent, the others arrived once and kept their steps",
        ),
        Rule(
            DROPPED_WITH_NOTICE,
            lambda n: n["arrived"] + n["refused"] < n["sent"] and n["notices"] > 0,
            "something of the run is missing, and a line about continuing it says so somewhere",
        ),
        Rule(
            DROPPED_SILENTLY,
            lambda n: n["arrived"] + n["refused"] < n["sent"],
            "something of the run is missing, and nothing says so",
        ),
        Rule(
            PRESERVED,
            lambda n: n["arrived"] == n["sent"] and n["steps_kept"] == n["scalars"] and n["extra"] == 0,
            "everything before and after arrived once, and every scalar carries the caller's step",
        ),
        Rule(REWRITTEN, lambda n: True, "steps that the caller never gave arrived, or something arrived twice"),
    ),
}
"""The rules of each row, tried in order."""

ROWS = tuple(RULES)
"""The rows of the table, in order."""

GRID_ROWS = ("histogram-counts", "histogram-edges", "summary", "histogram-steps")
"""The rows that have a cell for each grid."""

LOSSLESS = frozenset({EXACT, PRESERVED})
"""The words of a cell in which nothing was lost."""


def judge(row: str, numbers: Numbers) -> str:
    """Return the word for the numbers of one cell of ``row``. Clause: FID-1."""
    for rule in RULES[row]:
        if rule.when(numbers):
            return rule.word
    raise AssertionError(f"the rules of {row} have no last resort")
