"""From what was observed of a subject to the verdict and its report; all of it works on plain values."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from torchlens_conformance import __version__

from ..protocol import CAPABILITY_METHODS, Refusal
from .deviations import Deviation, excused, read_deviations
from .model import COULD_NOT_RUN, CheckResult, ControlResult, Report
from .profiles import Profile
from .reading import FORKED, FRESH, SAME, import_path
from .report import Steadied, build_document
from .subject import Subject
from .verdict import Evidence, judge


@dataclass(frozen=True, slots=True)
class Observed:
    """What was observed of one subject, before any judgement.

    Args:
        results: What the checks said.
        controls: What the controls and the wiredness probe did.
        words: The capability words that were driven, or None when the sink could not be asked.
        nonce: The nonce in tags and texts.
        milliseconds: How long all of it took.
        chosen: The checks that the caller chose, or None for the whole profile.
        trouble: What kept everything from running, a sentence; empty when nothing did.
    """

    results: Sequence[CheckResult]
    controls: Sequence[ControlResult]
    words: Sequence[str] | None
    nonce: str
    milliseconds: int
    chosen: Sequence[str] | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class SubjectFacts:
    """A subject as the report tells it, in plain values that travel between processes.

    Args:
        told: The fields of ``subject`` in the report.
        deviations: The fields of ``deviations`` in the report: ``entries``, ``file`` and ``problems``.
    """

    told: Mapping[str, Any]
    deviations: Mapping[str, Any] = field(default_factory=lambda: {"entries": [], "file": None, "problems": []})

    def known(self) -> tuple[Deviation, ...]:
        """Return the known deviations."""
        return tuple(
            Deviation(**{**entry, "expires": date.fromisoformat(entry["expires"]) if entry["expires"] else None})
            for entry in self.deviations["entries"]
        )


def describe(
    subject: Subject, words: Iterable[str] | None, *, reference: Mapping[str, str | None] | None = None
) -> SubjectFacts:
    """Return what the report says about a subject.

    Args:
        subject: The subject.
        words: The capability words that were driven, or None when the sink could not be asked.
        reference: How the command line finds the subject again; looked for when left out.
    """
    distribution, version = subject.identity()
    declared = sorted(words or subject.capabilities or ())
    told = {
        "declared": declared,
        "distribution": distribution,
        "in_process_read": subject.in_process_read,
        "name": subject.name,
        "read": read_mode(subject),
        "reference": subject_reference(subject) if reference is None else dict(reference),
        "undeclared": {
            word: subject.undeclared.get(word, "no reason given") for word in CAPABILITY_METHODS if word not in declared
        },
        "version": version,
    }
    if subject.deviations is None:
        return SubjectFacts(told)
    path = Path(subject.deviations)
    problems: list[str] = []
    entries: Sequence[Deviation] = ()
    try:
        entries = read_deviations(path)
    except Refusal as refusal:
        problems = [refusal.message]
    return SubjectFacts(told, {"entries": list(map(_entry, entries)), "file": path.name, "problems": problems})


def conclude(facts: SubjectFacts, profile: Profile, observed: Observed) -> Report:
    """Judge what was observed and make the report."""
    now = datetime.now(timezone.utc)
    partial = observed.chosen is not None
    results, problems = excused(
        observed.results,
        facts.known(),
        version=facts.told["version"],
        profile=profile.levels,
        today=now.date(),
        partial=partial,
    )
    problems = [*facts.deviations["problems"], *problems]
    verdict, why = judge(
        Evidence(
            levels=profile.levels,
            results=results,
            controls=observed.controls,
            declared=facts.told["declared"],
            deviation_problems=problems,
            in_process_read=facts.told["in_process_read"],
            partial=partial,
            trouble=observed.trouble,
        )
    )
    environment = _environment(now, observed)
    document = build_document(
        verdict=verdict,
        why=why,
        subject=facts.told,
        profile=profile,
        results=results,
        controls=observed.controls,
        deviations={**facts.deviations, "problems": problems},
        environment=environment,
        chosen=observed.chosen,
        steadied=Steadied({observed.nonce: "NONCE"}),
    )
    return Report(
        verdict=verdict,
        why=document["why"],
        subject=facts.told,
        profile=document["profile"],
        executed=document["checks"]["executed"],
        expected=document["checks"]["expected"],
        results=tuple(results),
        controls=tuple(observed.controls),
        environment=environment,
        document=document,
    )


def unimportable(target: str, why: str, profile: Profile) -> Report:
    """Return the report of a subject that could not even be imported: no check gave an answer."""
    reason = f"the subject could not be imported: {why}"
    results = [CheckResult(check.id, check.clauses, COULD_NOT_RUN, reason=reason) for check in profile.checks]
    told = {
        "declared": [],
        "distribution": target.partition(":")[0].partition(".")[0],
        "in_process_read": False,
        "name": target,
        "read": "not at all",
        "reference": {"reader": None, "target": target},
        "undeclared": {},
        "version": None,
    }
    problem = f"{target} could not be imported: {why}"
    observed = Observed(results=results, controls=(), words=(), nonce="", milliseconds=0, trouble=problem)
    return conclude(SubjectFacts(told), profile, observed)


def _environment(now: datetime, observed: Observed) -> dict[str, Any]:
    return {
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": socket.gethostname(),
        "kit": __version__,
        "milliseconds": observed.milliseconds,
        "nonce": observed.nonce,
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def read_mode(subject: Subject) -> str:
    """Say where the subject's reader runs: a fresh process, a forked one, or the one that wrote."""
    if subject.in_process_read:
        return SAME
    return FRESH if import_path(subject.read) is not None else FORKED


def subject_reference(subject: Subject) -> dict[str, str | None] | None:
    """Say how the command line finds the subject again: the module level name that holds it, if there is one."""
    names = {getattr(subject.open, "__module__", None), getattr(subject.read, "__module__", None)}
    for module in sorted(name for name in names if name in sys.modules and name != "__main__"):
        for name, value in list(vars(sys.modules[module]).items()):
            if value is subject and not name.startswith("_"):
                return {"reader": None, "target": f"{module}:{name}"}
    return None


def _entry(entry: Deviation) -> dict[str, Any]:
    return {
        "check": entry.check,
        "expires": entry.expires.isoformat() if entry.expires else None,
        "kind": entry.kind,
        "link": entry.link,
        "reason": entry.reason,
        "versions": entry.versions,
    }
