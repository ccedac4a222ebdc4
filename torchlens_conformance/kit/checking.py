"""Runs the scenarios that the asked checks need, and asks the checks (no controls, no verdict)."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .checks import CHECKS, NOT_APPLICABLE_WHEN, get_check
from .checks.plain_trip import PLAIN
from .checks.values import refusals
from .corpus import SMALL
from .model import COULD_NOT_RUN, FAILED, NOT_APPLICABLE, NOT_DECLARED, PASSED, Check, CheckResult, Finding, Transcript
from .processes import Limits
from .scenarios import SCENARIOS, Setting
from .subject import Subject


@dataclass(frozen=True, slots=True)
class ChecksOutcome:
    """What a run of the checks gives.

    Args:
        results: One result a check, in the order of the checks.
        transcripts: By scenario id, of every scenario that was run.
        expected: How many of the checks are asked of this subject: all but those of undeclared capabilities.
        executed: How many gave an answer: passed, failed or not applicable.
        words: The capability words that were driven; None when no sink could be asked.
        nonce: The nonce in tags and texts.
        seconds: By scenario id.
    """

    results: tuple[CheckResult, ...]
    transcripts: Mapping[str, Transcript]
    expected: int
    executed: int
    words: tuple[str, ...] | None
    nonce: str
    seconds: Mapping[str, float]


def run_checks(
    subject: Subject,
    *,
    checks: Iterable[str | Check] | None = None,
    size: str = SMALL,
    timeout: float = 20.0,
    memory: int = 3 << 30,
    nonce: str | None = None,
    fresh: bool | None = None,
) -> ChecksOutcome:
    """Run the scenarios that the checks need and return what the checks say.

    Only the scenarios of the asked checks run. Nothing that the subject does gets out of here: it runs in child
    processes, and how they end is told in the transcripts.

    Args:
        subject: The sink under certification.
        checks: Checks or their ids; all of them when left out.
        size: ``small`` (controls) or ``full`` (certificates).
        timeout: Seconds for each child process; the scenario of scale gets three times as many.
        memory: Bytes for each child process.
        nonce: Letters and digits; made up when left out.
        fresh: Whether every place is read in a fresh interpreter where that can be; by default in full size only.
            The scenario ``fresh`` always is.

    Raises ``kit_check_unknown``. Clause: PROT-1..11.
    """
    chosen = CHECKS if checks is None else checks
    asked = tuple(get_check(check) if isinstance(check, str) else check for check in chosen)
    nonce = nonce or "n" + secrets.token_hex(6)
    fresh = size != SMALL if fresh is None else fresh
    wanted = {scenario for check in asked for scenario in check.scenarios}
    transcripts, seconds = _run_scenarios(
        subject, wanted, size, nonce, Limits(timeout=timeout, memory=memory), fresh=fresh
    )
    words = _words(subject, transcripts)
    results = tuple(ask(check, transcripts, words) for check in asked)
    if any(needs_second_look(check, result) for check, result in zip(asked, results)):
        more, spent = _run_scenarios(subject, {PLAIN}, size, nonce, Limits(timeout=timeout, memory=memory), fresh=fresh)
        transcripts, seconds = {**transcripts, **more}, {**seconds, **spent}
        results = tuple(
            ask(check, transcripts, words) if needs_second_look(check, result) else result
            for check, result in zip(asked, results)
        )
    expected = sum(result.outcome != NOT_DECLARED for result in results)
    executed = sum(result.outcome not in (NOT_DECLARED, COULD_NOT_RUN) for result in results)
    return ChecksOutcome(results, transcripts, expected, executed, words, nonce, seconds)


def needs_second_look(check: Check, result: CheckResult) -> bool:
    """Say whether a check is asked again once the subject's plain trip (scenario ``plain``) is known."""
    return check.second_look and result.outcome == FAILED


def _run_scenarios(
    subject: Subject, wanted: Collection[str], size: str, nonce: str, limits: Limits, *, fresh: bool
) -> tuple[dict[str, Transcript], dict[str, float]]:
    transcripts: dict[str, Transcript] = {}
    seconds: dict[str, float] = {}
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        # The scenario of a read-only place gives up its rights and must still reach the place.
        folder.chmod(0o711)
        for name, scenario in SCENARIOS.items():
            if name not in wanted:
                continue
            own = folder / name
            own.mkdir(mode=0o711)
            setting = Setting(subject=subject, folder=own, size=size, nonce=nonce, limits=limits, fresh=fresh)
            start = time.perf_counter()
            try:
                transcripts[name] = scenario(setting)
            except OSError as error:
                # Ours, not the subject's: no room for a folder, say. The checks then tell that nothing was run.
                transcripts[name] = Transcript(name, f"could not start: {error}")
            seconds[name] = time.perf_counter() - start
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder, ignore_errors=True)
    return transcripts, seconds


def _words(subject: Subject, transcripts: Mapping[str, Transcript]) -> tuple[str, ...] | None:
    if subject.capabilities is not None:
        return tuple(sorted(subject.capabilities))
    for transcript in transcripts.values():
        if "words" in transcript.facts:
            words: Sequence[str] = transcript.facts["words"]
            return tuple(words)
    return None


def ask(check: Check, transcripts: Mapping[str, Transcript], words: Sequence[str] | None) -> CheckResult:
    """Return what one check says; a pure function of its arguments.

    Args:
        check: The check.
        transcripts: By scenario id.
        words: The declared capability words, None when they are not known.
    """
    if check.capability is not None and words is not None and check.capability not in words:
        reason = f"the subject does not declare {check.capability}"
        return CheckResult(check.id, check.clauses, NOT_DECLARED, reason=reason)
    if words is not None and not words and not check.id.startswith("surface."):
        reason = "no capability is declared, so nothing could be sent"
        return CheckResult(check.id, check.clauses, COULD_NOT_RUN, reason=reason)
    try:
        not_applicable = NOT_APPLICABLE_WHEN[check.id](transcripts) if check.id in NOT_APPLICABLE_WHEN else None
        if not_applicable:
            return CheckResult(check.id, check.clauses, NOT_APPLICABLE, reason=not_applicable)
        findings: Sequence[Finding] = tuple(check.find(transcripts))
        reason = _refused_in_words(check, transcripts)
    except Exception as error:
        # A fault of ours; it must not look like an answer.
        reason = f"the check itself failed: {type(error).__name__}: {error}"
        return CheckResult(check.id, check.clauses, COULD_NOT_RUN, reason=reason)
    return CheckResult(check.id, check.clauses, FAILED if findings else PASSED, tuple(findings), reason)


def _refused_in_words(check: Check, transcripts: Mapping[str, Transcript]) -> str:
    """Say which legal points were refused: a check may pass beside them, and the report tells."""
    if not check.id.startswith(("values.", "tags.")):
        return ""
    refused = [
        text
        for scenario in check.scenarios
        if scenario in transcripts
        for text in refusals(transcripts[scenario], check.capability)
    ]
    if not refused:
        return ""
    shown = "; ".join(refused[:6]) + ("; ..." if len(refused) > 6 else "")
    return f"{len(refused)} legal points were refused with a code: {shown}"
