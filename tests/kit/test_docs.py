"""The pages about certification are true: their sink is conformant, and their commands exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.kit.report_examples import CONTROLS, PROFILE
from torchlens_conformance.cli import cli
from torchlens_conformance.kit.certify import observe
from torchlens_conformance.kit.conclude import conclude, describe
from torchlens_conformance.kit.deviations import read_deviations
from torchlens_conformance.kit.model import CONFORMANT, VERDICTS

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    """Return the first code block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_sink_of_the_page_is_conformant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink of "Certify your sink in five minutes", as it stands there, is conformant (PROT-1)."""
    (tmp_path / "row_sink.py").write_text(block("certify.md", "python"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    subject = importlib.import_module("row_sink").SUBJECT
    observed = observe(subject, PROFILE, controls=CONTROLS[:2])
    report = conclude(describe(subject, observed.words), PROFILE, observed)
    assert (report.verdict, report.why[:4]) == (CONFORMANT, "All ")


def test_the_deviations_of_the_page_are_read(tmp_path: Path) -> None:
    """The file of known deviations on the page is one (PROT-1)."""
    path = tmp_path / "deviations.toml"
    path.write_text(block("certify.md", "toml"), encoding="utf-8")
    assert [entry.check for entry in read_deviations(path)] == ["values.scalar"]


def test_commands_of_the_page_exist() -> None:
    """Every command that the pages show is one (PROT-1)."""
    shown = set()
    for page in ("certify.md", "reading-a-report.md"):
        shown |= set(re.findall(r"torchlens-conformance (\w+)", (DOCS / page).read_text(encoding="utf-8")))
    assert shown >= {"certify", "explain", "list", "replay", "verify"}
    assert shown <= set(cli.list_commands(None))  # type: ignore[arg-type]


def test_every_verdict_is_explained() -> None:
    """The page about reports explains each verdict (PROT-1)."""
    text = (DOCS / "reading-a-report.md").read_text(encoding="utf-8")
    assert all(f"| {verdict} |" in text for verdict in VERDICTS)
