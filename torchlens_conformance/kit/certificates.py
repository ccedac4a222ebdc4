"""The page of the docs that shows the certificates of our own sinks, made from their reports.

``python -m torchlens_conformance.kit.certificates reports`` writes it from the folders that ``tox -e certify`` fills;
``--check`` writes nothing and says whether it differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..protocol import Refusal
from .model import FAILED, PASSED
from .verify import load_report

PAGE = Path("docs") / "certificates.md"
"""The page, seen from the project's root."""

COMMAND = "python -m torchlens_conformance.kit.certificates reports"
"""What makes the page of the reports that ``tox -e certify`` wrote."""


def load_reports(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the verified report documents below a folder by the names of their own folders, in alphabetical order.

    Raises ``kit_report_invalid`` for a report that is altered or no report, and for a folder without any.
    """
    paths = sorted(folder.glob("*/report.json"))
    if not paths:
        raise Refusal(
            "kit_report_invalid",
            f"There is no report below {folder}.",
            remedy="Run `tox -e certify`, or `torchlens-conformance certify SUBJECT --report-dir FOLDER`, first.",
            path=str(folder),
        )
    return {path.parent.name: load_report(path) for path in paths}


def as_page(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page: verdicts and counts, then what each sink does not keep or take, with the reason.

    Nothing that changes from run to run stands on it.
    """
    lines = [
        "# Certificates of our own sinks",
        "",
        "`tox -e certify` certifies every sink, writes the whole reports below `reports/`, and fails when this page is",
        f"not what they say; `{COMMAND}` makes it anew.",
        "",
        "A legal point that a store would change, or cannot hold, may be refused with a code: the check of its values",
        "passes then, and the report names what was refused. So *conformant* means that nothing is changed in silence,",
        "and not that everything is taken.",
        "",
        "| sink | verdict | checks that gave an answer | passed | known deviations | refuses some of "
        "| controls that held | carries |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for document in reports.values():
        counts, controls = document["checks"], document["controls"]
        held = sum(control["ok"] for control in controls)
        lines.append(
            f"| **{document['subject']['name']}** | {document['verdict']} | {counts['executed']} of "
            f"{counts['expected']} | {counts['passed']} | {counts['known_deviations']} | "
            f"{', '.join(refusals(document)) or 'nothing'} | {held} of {len(controls)} | "
            f"{', '.join(f'`{word}`' for word in document['subject']['declared'])} |"
        )
    for document in reports.values():
        lines += _section(document)
    return "\n".join([*lines, ""])


_TOLD_BY_OTHERS = ("values.steps", "values.summary")
"""Checks over points of every kind, or of a kind that has a check of its own, which tells the same refusals."""


def refusals(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what a report says about refused points: by what they were (``scalar``, ``tags``), in its own words."""
    return {
        row["check"].removeprefix("values.").removesuffix(".unchanged"): row["reason"]
        for row in document["results"]
        if row["check"].startswith(("values.", "tags."))
        and row["check"] not in _TOLD_BY_OTHERS
        and row["outcome"] in (PASSED, FAILED)
        and row["reason"]
    }


def _section(document: Mapping[str, Any]) -> list[str]:
    lines = ["", f"## {document['subject']['name']}", ""]
    refused = [f"| {kind} | {escaped(reason)} |" for kind, reason in refusals(document).items()]
    entries = [f"| `{entry['check']}` | {entry['reason']} |" for entry in document["deviations"]["entries"]]
    undeclared = [f"| `{word}` | {reason} |" for word, reason in document["subject"]["undeclared"].items()]
    tables = (("check that fails", "why", entries), ("refused", "what", refused), ("not declared", "why", undeclared))
    shown = [[f"| {first} | {second} |", "|---|---|", *rows] for first, second, rows in tables if rows]
    if not shown:
        return [*lines, "Every check of the profile passes, every capability is declared, and nothing is refused."]
    return lines + [line for table in shown for line in (*table, "")][:-1]


def escaped(text: str) -> str:
    """Return words of a report as Markdown that shows them as they are, in a cell of a table."""
    return re.sub(r"([\\`*_{}\[\]<>|#$&~@^])", r"\\\1", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the page; return 1 when it differs or a report is no good, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m torchlens_conformance.kit.certificates",
        description="Make the page of the docs from the reports of our own sinks.",
    )
    parser.add_argument("reports", type=Path, help="the folder with one folder a sink")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the page")
    parser.add_argument("--page", type=Path, default=PAGE, help=f"the page (default {PAGE})")
    options = parser.parse_args(arguments)
    try:
        page = as_page(load_reports(options.reports))
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 1
    if not options.check:
        options.page.write_text(page, encoding="utf-8")
        print(f"Wrote {options.page.name}.")
        return 0
    if options.page.exists() and options.page.read_text(encoding="utf-8") == page:
        print("The page of certificates is as it must be.")
        return 0
    print(f"{options.page.name} differs from the reports; run `{COMMAND}` and look at the change.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
