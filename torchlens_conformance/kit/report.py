"""The report document: canonical JSON with a digest, and the files that are made from it.

The document holds plain values only. What differs between two runs of one subject stands under ``environment`` and
nowhere else: findings are steadied before they go in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .model import CheckResult, ControlResult, Finding
from .profiles import Profile
from .report_kinds import SINK, ReportKind
from .verdict import count_outcomes

_MOST_FINDINGS = 20
_LONGEST_TEXT = 1500
_UNSTEADY = (
    # Of objects only: the bits of a number are shown in hexadecimal too, and are the same each time.
    (re.compile(r"\bat 0x[0-9a-fA-F]{6,}\b"), "at 0x..."),
    (re.compile(r"\bconformance-\w{8}\b"), "conformance-..."),
    (re.compile(r"\bplace-[0-9a-f]{8}\b"), "place-..."),
    (re.compile(r"\bpid[ =]\d+", re.IGNORECASE), "pid ..."),
    # What TensorBoard and wandb call their files: by time, host, process and chance.
    (re.compile(r"\bevents\.out\.tfevents\.[\w.-]+"), "events.out.tfevents..."),
    (re.compile(r"\boffline-run-\d{8}_\d{6}-\w+"), "offline-run-..."),
    (re.compile(r"\brun-\w{8}\.wandb\b"), "run-....wandb"),
    (re.compile(r"\bRun \(\w{8}\)"), "Run (...)"),
    (re.compile(r"(?<=/)tmp\w{8}(?:wandb-media)?(?=/)"), "tmp..."),
)


def canonical(document: Mapping[str, Any]) -> str:
    """Return the one text of a document: keys sorted, ASCII, indented, a newline at the end; no NaN."""
    return json.dumps(document, sort_keys=True, ensure_ascii=True, indent=1, allow_nan=False) + "\n"


def document_digest(document: Mapping[str, Any]) -> str:
    """Return ``sha256:`` of the canonical text without the field ``digest``.

    It shows that a report is unaltered, not who made it.
    """
    text = canonical({key: value for key, value in document.items() if key != "digest"})
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


class Steadied:
    """Takes out of texts what differs from run to run: the nonce, places, addresses, process ids.

    Args:
        unsteady: Each text to be replaced, with what stands for it.
    """

    def __init__(self, unsteady: Mapping[str, str] | None = None) -> None:
        # Longest first, since a place may hold another one.
        self._unsteady = sorted((unsteady or {}).items(), key=lambda item: -len(item[0]))

    def __call__(self, text: str) -> str:
        """Return the steadied text, cut when it is very long."""
        for unsteady, stands in self._unsteady:
            if unsteady:
                text = text.replace(unsteady, stands)
        for pattern, stands in _UNSTEADY:
            text = pattern.sub(stands, text)
        # A lone surrogate cannot be written to a file; reports show it escaped.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."


def build_document(
    *,
    verdict: str,
    why: str,
    subject: Mapping[str, Any],
    profile: Profile,
    results: Sequence[CheckResult],
    controls: Sequence[ControlResult],
    environment: Mapping[str, Any],
    deviations: Mapping[str, Any] | None = None,
    chosen: Sequence[str] | None = None,
    accepts: Sequence[str] | None = None,
    steadied: Steadied | None = None,
    kind: ReportKind = SINK,
) -> dict[str, Any]:
    """Return the document with its digest; it validates against the schema of its kind.

    Args:
        verdict: The verdict.
        why: It in one sentence.
        subject: The fields of ``subject``.
        profile: What was asked.
        results: What was answered.
        controls: What the controls did.
        environment: The fields of ``environment``.
        deviations: The fields of ``deviations``; None for a kind that knows none.
        chosen: The checks that were chosen, or None for the whole profile.
        accepts: The other spellings that were accepted, in words; the profile's when left out.
        steadied: Takes out of texts what differs from run to run.
        kind: The kind of the report.
    """
    steady = steadied or Steadied()
    by_check = {result.check: result for result in results}
    document: dict[str, Any] = {
        # "checks" sorts first, so a reader of the file meets the counts before anything else.
        "checks": count_outcomes(profile.levels, results),
        "controls": [control_row(control, steady) for control in controls],
        **({} if deviations is None else {"deviations": dict(deviations)}),
        "environment": dict(environment),
        "format": kind.format,
        "profile": {
            "accepts": profile.accepted() if accepts is None else list(accepts),
            "chosen": None if chosen is None else list(chosen),
            "digest": profile.digest,
            "id": profile.id,
        },
        "results": [
            result_row(by_check[check.id], check.level, steady) for check in profile.checks if check.id in by_check
        ],
        "subject": dict(subject),
        "verdict": verdict,
        "version": kind.version,
        "why": steady(why),
    }
    return {**document, "digest": document_digest(document)}


def control_row(control: ControlResult, steady: Steadied) -> dict[str, Any]:
    """Return one row of ``controls``."""
    return {
        "control": control.control,
        "expected": steady(control.expected),
        "ok": control.ok,
        "seen": steady(control.seen),
    }


def result_row(result: CheckResult, level: str, steady: Steadied) -> dict[str, Any]:
    """Return one row of ``results``."""
    return {
        "check": result.check,
        "clauses": list(result.clauses),
        "deviation": result.deviation,
        "findings": [_finding(finding, steady) for finding in result.findings[:_MOST_FINDINGS]],
        "findings_in_all": len(result.findings),
        "level": level,
        "outcome": result.outcome,
        "reason": steady(result.reason),
    }


def _finding(finding: Finding, steady: Steadied) -> dict[str, str]:
    return {
        "expected": steady(finding.expected),
        "loss": finding.loss,
        "message": steady(finding.message),
        "seen": steady(finding.seen),
        "where": steady(finding.where),
    }


def result_from_document(row: Mapping[str, Any]) -> CheckResult:
    """Return one row of ``results`` as a :class:`CheckResult` again."""
    return CheckResult(
        check=row["check"],
        clauses=tuple(row["clauses"]),
        outcome=row["outcome"],
        findings=tuple(Finding(**finding) for finding in row["findings"]),
        reason=row["reason"],
        deviation=row["deviation"],
    )


def control_from_document(row: Mapping[str, Any]) -> ControlResult:
    """Return one row of ``controls`` as a :class:`ControlResult` again."""
    return ControlResult(control=row["control"], expected=row["expected"], seen=row["seen"], ok=row["ok"])


def write_report(
    document: Mapping[str, Any], folder: Path, *, beside: Mapping[str, str] | None = None
) -> dict[str, Path]:
    """Write ``report.json``, ``report.html``, ``junit.xml`` and ``badge.json`` into ``folder``, made when missing.

    Args:
        document: The document of a report, of whatever kind.
        folder: Where to.
        beside: Further texts, by file name.

    Returns the path of each by its name. Raises ``OSError`` when the folder cannot be written.
    """
    from .badge import badge
    from .html import report_page
    from .junit import junit_xml

    return write_texts(
        folder,
        {
            "report.json": canonical(document),
            "report.html": report_page(document),
            "junit.xml": junit_xml(document),
            "badge.json": canonical(badge(document)),
            **(beside or {}),
        },
    )


def write_texts(folder: Path, texts: Mapping[str, str]) -> dict[str, Path]:
    """Write texts by file name into ``folder``, made when missing; return the path of each by its name.

    Raises ``OSError`` when the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, text in texts.items():
        paths[name] = folder / name
        # One rename each: a reader never meets half a report.
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(paths[name])
    return paths
