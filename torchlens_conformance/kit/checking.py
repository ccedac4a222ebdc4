"""Runs the scenarios that the asked checks need, and asks the checks (no controls, no verdict)."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .checks import CHECKS, NOT_APPLICABLE_WHEN, get_check
from .checks.plain_trip import PLAIN
from .checks.telling import refusals
from .corpus import SMALL
from .keepers import Fault, side_by_side
from .model import COULD_NOT_RUN, FAILED, NOT_APPLICABLE, NOT_DECLARED, PASSED, Check, CheckResult, Finding, Transcript
from .patience import Patience
from .processes import NOT_STARTED, Limits
from .scenarios import SCENARIOS, Setting
from .scenarios.scaling import shortened
from .subject import Subject

_LONGEST = "scale"


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
    memory: int = 1 << 30,
    nonce: str | None = None,
    fresh: bool | None = None,
    patience: Patience | None = None,
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
        patience: What is left of the patience with this subject, when it was run before.

    Raises ``kit_check_unknown``. Clause: PROT-1..11.
    """
    chosen = CHECKS if checks is None else checks
    asked = tuple(get_check(check) if isinstance(check, str) else check for check in chosen)
    nonce = nonce or "n" + secrets.token_hex(6)
    fresh = size != SMALL if fresh is None else fresh
    wanted = {scenario for check in asked for scenario in check.scenarios}
    limits = Limits(timeout=timeout, memory=memory, patience=patience or Patience())
    transcripts, seconds = _run_scenarios(subject, wanted, size, nonce, limits, fresh=fresh)
    words = _words(subject, transcripts)
    results = tuple(ask(check, transcripts, words) for check in asked)
    again = [check for check, result in zip(asked, results) if needs_second_look(check, result)]
    if again:
        about = frozenset(scenario for check in again for scenario in check.scenarios)
        more, spent = _run_scenarios(subject, {PLAIN}, size, nonce, limits, fresh=fresh, about=about)
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
    subject: Subject,
    wanted: Collection[str],
    size: str,
    nonce: str,
    limits: Limits,
    *,
    fresh: bool,
    about: frozenset[str] | None = None,
) -> tuple[dict[str, Transcript], dict[str, float]]:
    """Run scenarios side by side and return transcripts and seconds by scenario id, in the order of all scenarios."""
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        # The scenario of a read-only place gives up its rights and must still reach the place.
        folder.chmod(0o711)
        # The longest first, so that it does not run alone at the end.
        names = sorted((name for name in SCENARIOS if name in wanted), key=lambda name: name != _LONGEST)
        settings = {
            name: Setting(
                subject=subject,
                folder=folder / name,
                size=size,
                nonce=nonce,
                limits=limits,
                fresh=fresh,
                about=about,
            )
            for name in names
        }
        told = side_by_side([partial(_run_scenario, name, setting) for name, setting in settings.items()])
        outcomes = dict(zip(names, told))
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder, ignore_errors=True)
    for name, outcome in outcomes.items():
        if isinstance(outcome, Fault):
            outcomes[name] = (Transcript(name, f"{NOT_STARTED}: {outcome.text}"), 0.0)
    ordered = [name for name in SCENARIOS if name in outcomes]
    return {name: outcomes[name][0] for name in ordered}, {name: outcomes[name][1] for name in ordered}


def _run_scenario(name: str, setting: Setting) -> tuple[Transcript, float]:
    start = time.perf_counter()
    try:
        setting.folder.mkdir(mode=0o711)
        transcript = SCENARIOS[name](setting)
    except OSError as error:
        # Ours, not the subject's: no room for a folder, say. The checks then tell that nothing was run.
        transcript = Transcript(name, f"{NOT_STARTED}: {error}")
    return transcript, time.perf_counter() - start


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
    stuck = [told for name in check.scenarios if name in transcripts for told in _not_started(transcripts[name])]
    if stuck:
        return CheckResult(check.id, check.clauses, COULD_NOT_RUN, reason=stuck[0])
    try:
        not_applicable = NOT_APPLICABLE_WHEN[check.id](transcripts) if check.id in NOT_APPLICABLE_WHEN else None
        if not_applicable:
            return CheckResult(check.id, check.clauses, NOT_APPLICABLE, reason=not_applicable)
        findings: Sequence[Finding] = tuple(check.find(transcripts))
        reason = _refused_in_words(check, transcripts) or _shortened_in_words(check, transcripts)
    except Exception as error:
        # A fault of ours; it must not look like an answer.
        reason = f"the check itself failed: {type(error).__name__}: {error}"
        return CheckResult(check.id, check.clauses, COULD_NOT_RUN, reason=reason)
    return CheckResult(check.id, check.clauses, FAILED if findings else PASSED, tuple(findings), reason)


def _shortened_in_words(check: Check, transcripts: Mapping[str, Transcript]) -> str:
    """Say how many points a slow sink was sent in place of all: it may pass, and the report tells."""
    transcript = transcripts.get("scale") if check.id.startswith("scale.") else None
    return shortened(transcript) if transcript is not None else ""


def _not_started(transcript: Transcript) -> list[str]:
    """Say why a scenario was not driven, or its place not read, though neither is the answer of the subject."""
    read = transcript.read.error if transcript.read is not None else None
    return [text for text in (transcript.ended, read) if text is not None and NOT_STARTED in text]


def _refused_in_words(check: Check, transcripts: Mapping[str, Transcript]) -> str:
    """Say which legal points were refused: a check may pass beside them, and the report tells."""
    if not check.id.startswith(("values.", "tags.")):
        return ""
    # What an odd tag was refused for is told by the scenario that sends odd tags; values are told by their own checks.
    told = ("tags",) if check.id.startswith("tags.") else check.scenarios
    return refusals([transcripts[scenario] for scenario in told if scenario in transcripts], check.capability)
