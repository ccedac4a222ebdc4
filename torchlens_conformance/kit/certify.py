"""Certification: controls, the wiredness probe, the checks of a profile, and the verdict with its report."""

from __future__ import annotations

import platform
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..protocol import CAPABILITY_METHODS, Refusal
from .deviations import Deviation, excused, read_deviations
from .model import COULD_NOT_RUN, CheckResult, ControlResult, Report
from .profiles import DEFAULT_PROFILE, Profile, get_profile
from .reading import FORKED, FRESH, SAME, import_path
from .report import Steadied, build_document, write_report
from .spellings import spelled
from .subject import Subject
from .verdict import Evidence, judge

Progress = Callable[[str], None]
"""Called with one line at a time, for a person who waits."""


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
    """

    results: Sequence[CheckResult]
    controls: Sequence[ControlResult]
    words: Sequence[str] | None
    nonce: str
    milliseconds: int
    chosen: Sequence[str] | None = None


def certify(
    subject: Subject,
    *,
    profile: str = DEFAULT_PROFILE,
    checks: Iterable[str] | None = None,
    report_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Certify a sink and return the report; it never raises for the subject's faults.

    The controls run first: when the kit does not prove itself, the verdict is void. Then the wiredness probe and the
    checks of the profile run on the full corpus, in processes of their own.

    Args:
        subject: The sink under certification.
        profile: The id of a profile.
        checks: Check ids, to run only these; the verdict is then incomplete at best.
        report_dir: A folder, made when missing, for ``report.json``, ``report.html``, ``junit.xml``, ``badge.json``.
        progress: Called with a line at each stage.

    Raises ``kit_profile_unknown`` and ``kit_check_unknown``; ``OSError`` when ``report_dir`` cannot be written.

    Clause: PROT-1..11, MEM-1.
    """
    say = progress or (lambda line: None)
    chosen_profile = get_profile(profile)
    chosen = None if checks is None else tuple(dict.fromkeys(checks))
    require_checks(chosen_profile, chosen or ())
    start = time.monotonic()
    say("controls: the kit proves itself")
    controls = prove(chosen_profile)
    say(f"controls: {sum(control.ok for control in controls)} of {len(controls)} held")
    observed = observe(subject, chosen_profile, controls=controls, chosen=chosen, progress=say)
    observed = replace(observed, milliseconds=round(1000 * (time.monotonic() - start)))
    report = conclude(subject, chosen_profile, observed)
    if report_dir is not None:
        for name, path in write_report(report.document, Path(report_dir)).items():
            say(f"wrote {path}" if name.endswith(("json", "html")) else f"wrote {name}")
    return report


def require_checks(profile: Profile, checks: Iterable[str]) -> None:
    """Refuse ``kit_check_unknown`` for a check id that the profile does not have."""
    for check in checks:
        if check not in profile.levels:
            raise Refusal(
                "kit_check_unknown",
                f"Profile {profile.id} has no check {check!r}.",
                remedy="List the checks with `torchlens-conformance list`.",
                check=check,
                profile=profile.id,
            )


def prove(profile: Profile) -> tuple[ControlResult, ...]:
    """Run the controls of a profile; a fault in them is told as a control that did not hold."""
    from .controls import run_controls

    try:
        return run_controls(checks=list(profile.levels))
    except Exception as error:
        return (ControlResult("controls", "run", f"{type(error).__name__}: {error}", False),)


def observe(
    subject: Subject,
    profile: Profile,
    *,
    controls: Sequence[ControlResult],
    chosen: Sequence[str] | None = None,
    progress: Progress = lambda line: None,
) -> Observed:
    """Run the wiredness probe and the checks on one subject; nothing is judged here."""
    from .engine import run_checks
    from .wiredness import run_probe

    start = time.monotonic()
    seen = spelled(subject, profile.words)
    nonce = "n" + secrets.token_hex(6)
    progress("wiredness probe")
    probe = run_probe(seen)
    asked = list(profile.levels) if chosen is None else list(chosen)
    progress(f"checks: {len(asked)} on {subject.name}")
    outcome = run_checks(seen, checks=asked, size="full", nonce=nonce)
    return Observed(
        results=outcome.results,
        controls=(*controls, probe),
        words=outcome.words,
        nonce=nonce,
        milliseconds=round(1000 * (time.monotonic() - start)),
        chosen=chosen,
    )


def conclude(subject: Subject, profile: Profile, observed: Observed) -> Report:
    """Judge what was observed and make the report."""
    now = datetime.now(timezone.utc)
    distribution, version = subject.identity()
    declared = sorted(observed.words or subject.capabilities or ())
    entries, problems = _deviations(subject)
    results, more = excused(
        observed.results,
        entries,
        version=version,
        profile=profile.levels,
        today=now.date(),
        partial=observed.chosen is not None,
    )
    problems += more
    evidence = Evidence(
        levels=profile.levels,
        results=results,
        controls=observed.controls,
        declared=declared,
        deviation_problems=problems,
        in_process_read=subject.in_process_read,
        partial=observed.chosen is not None,
    )
    verdict, why = judge(evidence)
    told = {
        "declared": declared,
        "distribution": distribution,
        "in_process_read": subject.in_process_read,
        "name": subject.name,
        "read": read_mode(subject),
        "reference": subject_reference(subject),
        "undeclared": {
            word: subject.undeclared.get(word, "no reason given") for word in CAPABILITY_METHODS if word not in declared
        },
        "version": version,
    }
    environment = {
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": socket.gethostname(),
        "kit": _kit_version(),
        "milliseconds": observed.milliseconds,
        "nonce": observed.nonce,
        "platform": platform.platform(),
        "python": platform.python_version(),
    }
    document = build_document(
        verdict=verdict,
        why=why,
        subject=told,
        profile=profile,
        results=results,
        controls=observed.controls,
        deviations={
            "entries": [_entry(entry) for entry in entries],
            "file": subject.deviations.name if subject.deviations is not None else None,
            "problems": problems,
        },
        environment=environment,
        chosen=observed.chosen,
        steadied=Steadied({observed.nonce: "NONCE"}),
    )
    return Report(
        verdict=verdict,
        why=document["why"],
        subject=told,
        profile=document["profile"],
        executed=document["checks"]["executed"],
        expected=document["checks"]["expected"],
        results=tuple(results),
        controls=tuple(observed.controls),
        environment=environment,
        document=document,
    )


def unimportable(target: str, why: str, *, profile: str = DEFAULT_PROFILE) -> Report:
    """Return the report of a subject that could not even be imported: nothing ran, so it is incomplete."""
    chosen = get_profile(profile)
    reason = f"the subject could not be imported: {why}"
    results = [CheckResult(check.id, check.clauses, COULD_NOT_RUN, reason=reason) for check in chosen.checks]
    subject = Subject(name=target, open=_nothing, read=_nothing, distribution=target.split(".")[0], capabilities=())
    observed = Observed(results=results, controls=(), words=(), nonce="", milliseconds=0)
    report = conclude(subject, chosen, observed)
    sentence = f"{target} could not be imported: {why}"
    document = {**report.document, "why": sentence}
    from .report import document_digest

    document["digest"] = document_digest(document)
    return replace(report, why=sentence, document=document)


def _nothing(place: Path) -> Any:
    raise RuntimeError("the subject could not be imported")


def read_mode(subject: Subject) -> str:
    """Say where the subject's reader runs: a fresh process, a forked one, or the one that wrote."""
    if subject.in_process_read:
        return SAME
    return FRESH if import_path(subject.read) is not None else FORKED


def subject_reference(subject: Subject) -> dict[str, str | None] | None:
    """Say how the command line finds the subject again: the module level name that holds it, if there is one."""
    names = {getattr(subject.open, "__module__", None), getattr(subject.read, "__module__", None)}
    modules = [name for name in sorted(filter(None, names)) if name in sys.modules and name != "__main__"]
    for module in modules:
        for name, value in list(vars(sys.modules[module]).items()):
            if value is subject and not name.startswith("_"):
                return {"reader": None, "target": f"{module}:{name}"}
    return None


def _deviations(subject: Subject) -> tuple[tuple[Deviation, ...], list[str]]:
    if subject.deviations is None:
        return (), []
    try:
        return read_deviations(Path(subject.deviations)), []
    except Refusal as refusal:
        return (), [refusal.message]


def _entry(entry: Deviation) -> Mapping[str, Any]:
    return {
        "check": entry.check,
        "expires": entry.expires.isoformat() if entry.expires else None,
        "kind": entry.kind,
        "link": entry.link,
        "reason": entry.reason,
        "versions": entry.versions,
    }


def _kit_version() -> str:
    from torchlens_conformance import __version__

    return __version__
