"""One line in a test module certifies a sink: ``test_my_sink = certification(SUBJECT)`` (see the pytest plugin)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .patience import Patience
from .profiles import DEFAULT_PROFILE, get_profile
from .subject import Subject

if TYPE_CHECKING:
    from .conclude import SubjectFacts
    from .model import Check, CheckResult, ControlResult, Transcript


class Certification:
    """A subject bound to a name of a test module; the pytest plugin makes one test item a check of it.

    Args:
        subject: The sink under certification.
        profile: The id of a profile.
        report_dir: A folder for the report of a whole run, or None.
    """

    def __init__(self, subject: Subject, profile: str, report_dir: Path | None) -> None:
        self.subject = subject
        self.profile = get_profile(profile)
        self.report_dir = report_dir
        self._runs: Runs | None = None

    def runs(self) -> Runs:
        """Return what this process has run of it so far."""
        if self._runs is None:
            self._runs = Runs(self)
        return self._runs


def certification(
    subject: Subject, *, profile: str = DEFAULT_PROFILE, report_dir: str | Path | None = None
) -> Certification:
    """Bind a subject in a test module, so that pytest certifies it, one test item a check.

    The items are ``test_my_sink::controls``, ``test_my_sink::wiredness`` and one a check
    (``test_my_sink::values.scalar``). What is a known deviation shows as xfailed, what is not declared as skipped. At
    the end of the run the verdict is printed; when some items did not run it says "incomplete, no certificate".

    Args:
        subject: The sink under certification.
        profile: The id of a profile.
        report_dir: A folder for the report files, or None; written where all results meet.

    Raises ``kit_profile_unknown``.
    """
    return Certification(subject, profile, None if report_dir is None else Path(report_dir))


class Runs:
    """What one process runs for one certification: each scenario once, when the first check needs it."""

    def __init__(self, bound: Certification) -> None:
        from .spellings import spelled

        self.bound = bound
        self.nonce = "n" + secrets.token_hex(6)
        self._seen = spelled(bound.subject, bound.profile.words)
        self._patience = Patience()
        self._transcripts: dict[str, Transcript] = {}
        self._words: Sequence[str] | None = None

    def result(self, check_id: str) -> CheckResult:
        """Return what one check says; runs the scenarios that it needs and that have not run yet."""
        from .checking import ask, needs_second_look
        from .checks import get_check
        from .checks.plain_trip import PLAIN

        check = get_check(check_id)
        result = ask(check, self._needed(check.scenarios), self._words)
        if needs_second_look(check, result):
            result = ask(check, self._needed((*check.scenarios, PLAIN)), self._words)
        return result

    def _needed(self, scenarios: Sequence[str]) -> dict[str, Transcript]:
        missing = [name for name in scenarios if name not in self._transcripts]
        if missing:
            self._run(missing)
        return {name: self._transcripts[name] for name in scenarios if name in self._transcripts}

    def probe(self) -> ControlResult:
        """Run the wiredness probe."""
        from .wiredness import run_probe

        return run_probe(self._seen, patience=self._patience)

    def controls(self) -> tuple[ControlResult, ...]:
        """Run the controls."""
        from .certify import prove

        return prove(self.bound.profile)

    def facts(self) -> SubjectFacts:
        """Return what the report says about the subject."""
        from .conclude import describe

        return describe(self.bound.subject, self._words)

    def _run(self, scenarios: Sequence[str]) -> None:
        from .checking import run_checks

        outcome = run_checks(
            self._seen,
            checks=[_nothing_asked(scenarios)],
            size="full",
            nonce=self.nonce,
            patience=self._patience,
        )
        self._transcripts.update(outcome.transcripts)
        self._words = outcome.words if outcome.words is not None else self._words


def _nothing_asked(scenarios: Sequence[str]) -> Check:
    from .model import Check

    return Check("kit.scenarios", ("PROT-1",), "Nothing.", tuple(scenarios), _no_findings)


def _no_findings(transcripts: Mapping[str, Any]) -> tuple[()]:
    return ()
