"""Writes the tables of docs/torchlens-sinks.md from the reports of a real run: ``torchlens_table.py REPORTS PAGE``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- written by torchlens_table.py -->", "<!-- end -->"
_LONGEST = 300


def tables(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the counts of every report, and for each what failed with its first finding."""
    kit, profile = documents[0]["environment"]["kit"], documents[0]["profile"]["id"]
    version = documents[0]["subject"]["version"]
    lines = [f"torchlens {version}, torchlens-conformance {kit}, profile {profile}.", ""]
    lines += ["| sink | verdict | passed | failed | not declared | not applicable |", "|---|---|---|---|---|---|"]
    for document in documents:
        counts = document["checks"]
        numbers = (counts["passed"], counts["failed"], counts["not_declared"], counts["not_applicable"])
        lines.append(
            f"| {document['subject']['name']} | {document['verdict']} | " + " | ".join(map(str, numbers)) + " |"
        )
    for document in documents:
        lines += ["", f"## {document['subject']['name']}", ""]
        lines += [f"Wiredness probe: {row['seen']}." for row in document["controls"] if not row["ok"]]
        failed = [row for row in document["results"] if row["outcome"] == "failed"]
        if failed:
            lines += ["| check | level | findings | the first |", "|---|---|---|---|"]
        lines += [
            f"| `{row['check']}` | {row['level']} | {row['findings_in_all']} | {_cell(row['findings'][0]['message'])} |"
            for row in failed
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    text = " ".join(text.split())
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    for character in "\\|<>*_`[]":
        text = text.replace(character, "\\" + character)
    return text


def main(reports: Path, page: Path) -> None:
    """Put the tables of every ``REPORTS/*/report.json`` between the two markers of the page."""
    found = sorted(reports.glob("*/report.json"))
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (found and begin and end):
        sys.exit(f"{reports} holds no report, or {page} no markers.")
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in found]
    page.write_text(f"{before}{begin}\n\n{tables(documents)}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
