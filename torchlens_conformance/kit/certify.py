"""Certification: controls, the wiredness probe, the checks of a profile, and the verdict with its report."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..protocol import Refusal
from .conclude import Observed, conclude, describe
from .model import ControlResult, Report
from .patience import Patience
from .profiles import DEFAULT_PROFILE, Profile, get_profile
from .report import write_report
from .spellings import spelled
from .subject import Subject

PATIENCE = 20.0
"""Seconds for each process of a subject, until one hangs."""

Progress = Callable[[str], None]
"""Called with one line at a time, for a person who waits."""


def certify(
    subject: Subject,
    *,
    profile: str = DEFAULT_PROFILE,
    checks: Iterable[str] | None = None,
    report_dir: str | Path | None = None,
    reference: Mapping[str, str | None] | None = None,
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
        reference: How the command line finds the subject again (``target``, ``reader``); looked for when left out.
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
    report = conclude(describe(subject, observed.words, reference=reference), chosen_profile, observed)
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
    timeout: float = PATIENCE,
) -> Observed:
    """Run the wiredness probe and the checks on one subject; nothing is judged here.

    Args:
        subject: The sink under certification.
        profile: The profile.
        controls: What the controls did.
        chosen: Check ids, to run only these.
        progress: Called with a line at each stage.
        timeout: Seconds for each process of the subject, until one hangs.
    """
    from .checking import run_checks
    from .wiredness import run_probe

    start = time.monotonic()
    seen = spelled(subject, profile.words)
    nonce = "n" + secrets.token_hex(6)
    progress("wiredness probe")
    # What hangs once will hang in every scenario; nobody waits for all of them in full.
    patience = Patience()
    probe = run_probe(seen, timeout=timeout, patience=patience)
    asked = list(profile.levels) if chosen is None else list(chosen)
    progress(f"checks: {len(asked)} on {subject.name}")
    outcome = run_checks(seen, checks=asked, size="full", nonce=nonce, timeout=timeout, patience=patience)
    return Observed(
        results=outcome.results,
        controls=(*controls, probe),
        words=outcome.words,
        nonce=nonce,
        milliseconds=round(1000 * (time.monotonic() - start)),
        chosen=chosen,
    )
