"""Writes the table of torchlens into ``docs/engine-kit.md``, from the report of a real run.

``python -m torchlens_conformance.kit.engine.torchlens_page REPORT.json``, where the report was made by
``torchlens-conformance engine torchlens --expect nonconformant --report-dir DIR``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .kill_matrix import PAGE_FILE
from .report_text import as_table, summary_lines

START, END = "<!-- torchlens: begin -->", "<!-- torchlens: end -->"
"""The borders of the generated section."""


def section(document: Mapping[str, Any]) -> str:
    """Return the section of the page, with its borders."""
    versions = ", ".join(f"{name} {version}" for name, version in document["environment"]["versions"].items())
    told = "\n".join(f"- {line}" for line in summary_lines(document))
    return f"{START}\n\n{told}\n- measured with {versions}\n\n{as_table(document)}\n{END}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the section; return 0."""
    (report,) = sys.argv[1:] if arguments is None else arguments
    document = json.loads(Path(report).read_text(encoding="utf-8"))
    page = PAGE_FILE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    PAGE_FILE.write_text(before + section(document) + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
