"""Sphinx configuration; warnings are errors in `tox -e docs`."""

from __future__ import annotations

import shutil
from pathlib import Path

import torchlens_conformance
from torchlens_conformance.protocol import REFUSAL_CODES
from torchlens_conformance.spec import clauses

project = "torchlens-conformance"
author = "The torchlens-conformance authors"
copyright = "2026, the torchlens-conformance authors"
version = release = torchlens_conformance.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build", "generated/extra"]
html_theme = "furo"
html_title = f"torchlens-conformance {release}"
# Names of packages that the docs environment does not install.
autodoc_mock_imports: list[str] = []
nitpicky = False


def _write_generated(folder: Path) -> None:
    """Make the pages that are made from data: refusal codes and clauses."""
    folder.mkdir(exist_ok=True)
    lines = [
        "# Refusal codes",
        "",
        "Every refusal carries a code of this table, the offending fields and a remedy.",
        "",
    ]
    lines += ["| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in REFUSAL_CODES.items()]
    (folder / "refusals.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["# Clauses", "", "The rules. *Checked* ones are cited by a test; the others are planned.", ""]
    lines += ["| clause | level | binds | status | rule |", "|---|---|---|---|---|"]
    for clause in clauses():
        rule = clause.rule.replace("|", "\\|").replace("<", "\\<")
        lines.append(f"| {clause.id} | {clause.level} | {', '.join(clause.binds)} | {clause.status} | {rule} |")
    (folder / "clauses.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _gather_reports(reports: Path, folder: Path) -> None:
    """Take the pages of the reports that `tox -e certify` left, and make a list of them; there may be none."""
    shutil.rmtree(folder / "extra", ignore_errors=True)
    (folder / "extra" / "reports").mkdir(parents=True)
    links = []
    for path in sorted(reports.glob("*/report.html")):
        shutil.copyfile(path, folder / "extra" / "reports" / f"{path.parent.name}.html")
        links.append(f'<li><a href="../reports/{path.parent.name}.html">{path.parent.name}</a></li>')
    lines = ["# Whole reports", "", "The reports of this build, as `tox -e certify` wrote them.", ""]
    if not links:
        lines[2] = "This build was made without reports; `tox -e certify` before `tox -e docs` brings them here."
    lines += ["```{raw} html", "<ul>", *links, "</ul>", "```"] if links else []
    (folder / "reports.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


_HERE = Path(__file__).parent
_write_generated(_HERE / "generated")
_gather_reports(_HERE.parent / "reports", _HERE / "generated")
html_extra_path = ["generated/extra"]
