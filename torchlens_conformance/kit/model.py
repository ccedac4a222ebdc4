"""The values that the kit's parts exchange: transcripts, findings, checks and reports. No part of it does anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..protocol import Point

ACKNOWLEDGED, REFUSED, RAISED = "acknowledged", "refused", "raised"
"""What became of a call: it returned, it raised a typed refusal, or it raised something else."""

LOSS_CLASSES = (
    "exact",
    "bounded",
    "coerced",
    "dropped with notice",
    "dropped silently",
    "refused",
    "crashed",
    "unreadable",
)
"""The closed classes of loss of a finding."""

CONFORMANT, WITH_DEVIATIONS, NONCONFORMANT, INCOMPLETE, VOID = (
    "conformant",
    "with-deviations",
    "nonconformant",
    "incomplete",
    "void",
)
"""The closed verdicts."""

VERDICTS = (CONFORMANT, WITH_DEVIATIONS, NONCONFORMANT, INCOMPLETE, VOID)

PASSED, FAILED, NOT_APPLICABLE, NOT_DECLARED, COULD_NOT_RUN = (
    "passed",
    "failed",
    "not applicable",
    "not declared",
    "could not run",
)
"""What a check says: the last three are different things and never mixed."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call into the subject's sink and what became of it.

    Args:
        name: The method: ``open``, ``emit_scalar``, ``flush``, ``close``, ``capabilities`` ...
        outcome: One of acknowledged, refused, raised.
        point: The point handed over, for ``emit_*``.
        code: The refusal's code, or None.
        fields: The refusal's fields as plain values.
        remedy: The refusal's remedy.
        exception: Class name and text of what was raised, or None.
        seconds: How long it took.
        note: What the scenario wants to say about the call.
    """

    name: str
    outcome: str
    point: Point | None = None
    code: str | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    remedy: str | None = None
    exception: str | None = None
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What the subject's reader gave.

    Args:
        points: In stored order; None when the reader raised, hung or gave no points.
        error: What it raised, or None.
        torn: The reader's own word on a torn tail, or None.
        unplaced: How many things it could not place.
        how: ``fresh process``, ``forked process`` or ``same process``.
    """

    points: tuple[Point, ...] | None
    error: str | None = None
    torn: str | None = None
    unplaced: int = 0
    how: str = "fresh process"


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that one scenario observed; checks see nothing else.

    Args:
        scenario: The scenario's id.
        ended: ``ok``, or why the driving process did not end by itself: ``timed out``, ``killed by the scenario``,
            ``exit code N``, ``signal N``, ``could not start``.
        calls: In order.
        sent: The points that the scenario meant to send, in order.
        read: What came back, or None when the scenario does not read.
        facts: What only this scenario knows, as plain values.
        output: The last lines that the process printed.
    """

    scenario: str
    ended: str
    calls: tuple[Call, ...] = ()
    sent: tuple[Point, ...] = ()
    read: ReadBack | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found wrong.

    Args:
        message: A sentence: what was expected and what was seen.
        expected: The expected value, shown; for numbers its bits as well.
        seen: The seen value, shown the same way.
        loss: One of :data:`LOSS_CLASSES`.
        where: Tag, step and position of the point, or the call.
    """

    message: str
    expected: str
    seen: str
    loss: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A question about transcripts, with the clauses it stands for.

    Args:
        id: Stable, dotted: ``values.scalar``, ``teardown.close-twice``.
        clauses: Clause ids.
        question: One sentence that a sink author understands.
        scenarios: The scenarios whose transcripts it needs.
        capability: The capability word it is about, or None for all sinks; not declared means not asked.
        find: From transcripts by scenario id to findings; pure, never raises, never prints.
        level: ``must`` or ``should``.
        remedy: What an author usually has to do.
        second_look: Whether the check asks what *this scenario* does to points, so that it is asked again with the
            subject's plain trip in hand when it fails: what a plain trip changes as well is told by other checks.
    """

    id: str
    clauses: tuple[str, ...]
    question: str
    scenarios: tuple[str, ...]
    find: Callable[[Mapping[str, Transcript]], Sequence[Finding]]
    capability: str | None = None
    level: str = "must"
    remedy: str = ""
    second_look: bool = False


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check says about one subject."""

    check: str
    clauses: tuple[str, ...]
    outcome: str
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    deviation: str | None = None


@dataclass(frozen=True, slots=True)
class ControlResult:
    """Whether one control behaved: a perfect subject, a planted defect, the wiredness probe.

    Args:
        control: Its id.
        expected: What it had to do, in words.
        seen: What it did.
        ok: Whether these agree.
    """

    control: str
    expected: str
    seen: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one certification.

    Args:
        verdict: One of :data:`VERDICTS`.
        why: The verdict in one sentence.
        subject: Name, distribution, version, declared capabilities, reasons for undeclared ones, read mode.
        profile: Id and digest.
        executed: How many checks gave an answer.
        expected: How many the profile asks of this subject.
        results: Every check of the profile, in order.
        controls: Every control.
        environment: Kit version, Python, platform, date, host, nonce, seconds.
        document: The canonical report document with its digest, ready to be written as JSON.
    """

    verdict: str
    why: str
    subject: Mapping[str, Any]
    profile: Mapping[str, str]
    executed: int
    expected: int
    results: tuple[CheckResult, ...]
    controls: tuple[ControlResult, ...]
    environment: Mapping[str, Any]
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 conformant, 1 with deviations or nonconformant, 2 incomplete or void."""
        return {CONFORMANT: 0, WITH_DEVIATIONS: 1, NONCONFORMANT: 1, INCOMPLETE: 2, VOID: 2}[self.verdict]
