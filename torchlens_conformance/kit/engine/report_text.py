"""The report of an engine as text for people, and its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..model import COULD_NOT_RUN, FAILED, NOT_APPLICABLE, NOT_DECLARED
from ..report import write_report

_SHOWN = 3


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the counts, the accepted spellings and the verdict."""
    counts, subject = document["checks"], document["subject"]
    held = sum(control["ok"] for control in document["controls"])
    return [
        f"{counts['executed']} of {counts['expected']} laws executed: {counts['passed']} passed, "
        f"{counts['failed']} failed, {counts['could_not_run']} could not run, {counts['not_run']} not run; "
        f"{counts['not_declared']} not declared, {counts['not_applicable']} not applicable",
        f"{held} of {len(document['controls'])} controls held",
        *(f"accepted: {spelling}" for spelling in document["profile"]["accepts"]),
        f"{subject['name']} {subject['version'] or ''}".strip() + f": {document['verdict']}. {document['why']}",
    ]


def report_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the whole report: the summary first, then every law that did not hold."""
    lines = summary_lines(document)
    for control in document["controls"]:
        if not control["ok"]:
            lines.append(f"control {control['control']}: had to {control['expected']}, did: {control['seen']}")
    for row in document["results"]:
        if row["outcome"] in (FAILED, COULD_NOT_RUN, NOT_DECLARED, NOT_APPLICABLE):
            reason = f": {row['reason']}" if row["reason"] else ""
            lines.append(f"{row['outcome']}: {row['check']} [{', '.join(row['clauses'])}]{reason}")
        for finding in row["findings"][:_SHOWN]:
            lines.append(f"    {finding['message']} [{finding['loss']}]")
            lines += [f"        {key}: {finding[key]}" for key in ("expected", "seen", "where") if finding[key]]
        if row["findings_in_all"] > _SHOWN:
            lines.append(f"    and {row['findings_in_all'] - _SHOWN} more")
    return lines


def as_table(document: Mapping[str, Any]) -> str:
    """Return the laws as a Markdown table: id, clauses, outcome, and the first finding of each that failed."""
    lines = ["| Law | Clauses | Outcome | First finding |", "|---|---|---|---|"]
    for row in document["results"]:
        told = row["reason"]
        if row["findings"]:
            first = row["findings"][0]
            told = f"{first['message']} Expected {first['expected']}; seen {first['seen']}."
            told += f" ({row['findings_in_all']} in all)" if row["findings_in_all"] > 1 else ""
        told = told.replace("|", "\\|").replace("\n", " ")[:260]
        lines.append(f"| `{row['check']}` | {', '.join(row['clauses'])} | {row['outcome']} | {told} |")
    return "\n".join(lines) + "\n"


def write_engine_report(document: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Write all that is written of a report, and ``report.txt`` and ``table.md``; return the path of each by its name.

    Raises ``OSError`` when the folder cannot be written.
    """
    beside = {"report.txt": "\n".join(report_lines(document)) + "\n", "table.md": as_table(document)}
    return write_report(document, folder, beside=beside)
