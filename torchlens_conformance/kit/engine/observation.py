"""The values that the engine kit exchanges: rows, events, observations and laws. No part of it does anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model import ACKNOWLEDGED, RAISED, REFUSED, Finding

__all__ = [
    "ACKNOWLEDGED",
    "RAISED",
    "REFUSED",
    "CloseFacts",
    "Event",
    "Finding",
    "Law",
    "NotApplicable",
    "Observed",
    "PackageMissing",
    "Row",
    "SinkFacts",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One point as a sink received it, whatever class the engine's points have.

    Args:
        kind: ``scalar``, ``histogram`` or ``text``.
        tag: The tag, in the protocol's spelling.
        step: The step as it came; its type is the engine's.
        value: The value of a scalar.
        counts: The counts of a histogram, as they came.
        edges: The edges of a histogram.
        summary: The summary of a histogram.
        text: The text of a text.
        during: Index of the operation during which it came.
    """

    kind: str
    tag: str
    step: Any
    value: Any = None
    counts: tuple[Any, ...] = ()
    edges: tuple[float, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    during: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was done to the engine, or to the model that it watches, and what became of it.

    Args:
        what: ``attach``, ``open``, ``train``, ``leave``, ``close`` ...
        outcome: acknowledged (it returned), refused (it raised with a code) or raised (something else).
        code: The refusal's code, in the protocol's spelling.
        exception: Class name and text of what was raised.
        step: The step that was given, if one was.
    """

    what: str
    outcome: str = ACKNOWLEDGED
    code: str | None = None
    exception: str = ""
    step: Any = None


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """One row of the engine's own ledger.

    Args:
        name: How the engine calls the sink.
        emitted: How many points it says the sink took: scalars, histograms and texts together.
        failed: Whether it is latched.
        why: The failure it names.
    """

    name: str
    emitted: int
    failed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class CloseFacts:
    """What the engine's close report says, as far as the laws ask.

    Args:
        sampled: How many steps were sampled.
        first: The first seen step.
        last: The last seen step.
        forced: Whether a final sample was forced.
        sinks: The ledger, in the order of the sinks.
        skips: (name, step) of each named skip.
        text: The report for people.
        disabled_by: What kept the session from collecting anything, as the report says it; empty when nothing did.
    """

    sampled: int | None
    first: int | None
    last: int | None
    forced: bool | None
    sinks: tuple[SinkFacts, ...] = ()
    skips: tuple[tuple[str, int | None], ...] = ()
    text: str = ""
    disabled_by: str = ""


class NotApplicable(Exception):
    """Raised by a scenario that this machine cannot ask, whatever the engine; the text says why."""


class PackageMissing(Exception):
    """Raised by a scenario that drives a package which is not installed; its laws could not run.

    Args:
        package: Its name.
        extra: The extra of this distribution that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{PACKAGE_MISSING} {package}; install it by python -m pip install 'torchlens-conformance[{extra}]'"
        )


PACKAGE_MISSING = "package missing:"
"""How the reason begins why such a law could not run."""


@dataclass(frozen=True, slots=True)
class Observed:
    """All that one case of a scenario observed; laws see nothing else.

    Args:
        case: ``scenario/case``.
        rows: What each sink received, in order, by the sink's name.
        events: What was done, in order.
        report: The close report, or None when there was none.
        facts: What only this case knows, as plain values.
        trouble: What kept the case from ending, or empty; then the laws that need it could not run.
    """

    case: str
    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    report: CloseFacts | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""

    @property
    def first_rows(self) -> tuple[Row, ...]:
        """The rows of the first sink."""
        return next(iter(self.rows.values()), ())


@dataclass(frozen=True, slots=True)
class Law:
    """A question about observations of an engine, with the clauses it stands for.

    Args:
        id: Stable, dotted: ``step.model``.
        clauses: Clause ids.
        question: One sentence that an engine's author understands.
        scenarios: The scenarios whose observations it needs.
        judge: From observations by case to findings; pure, never raises, never prints.
        needs: The abilities it is about; an engine that does not declare one of them is not asked.
        level: ``must`` or ``should``.
        remedy: What an author usually has to do.
    """

    id: str
    clauses: tuple[str, ...]
    question: str
    scenarios: tuple[str, ...]
    judge: Callable[[Mapping[str, Observed]], Sequence[Finding]]
    needs: tuple[str, ...] = ()
    level: str = "must"
    remedy: str = ""
