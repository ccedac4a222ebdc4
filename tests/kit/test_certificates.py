"""The page of certificates is made from verified reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlens_conformance.kit.certificates import as_page, load_reports, main
from torchlens_conformance.kit.report import write_report
from torchlens_conformance.protocol import Refusal

from .report_examples import report


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Return a folder with one report."""
    write_report(report(values_scalar="failed").document, tmp_path / "reports" / "one")
    return tmp_path / "reports"


def test_the_page_tells_verdict_counts_and_reasons(reports: Path) -> None:
    """Every sink has a row with its verdict and counts, and a section with its deviations (PROT-10)."""
    (document,) = load_reports(reports).values()
    page = as_page({"one": document})
    assert f"| **{document['subject']['name']}** | {document['verdict']} |" in page
    assert f"{document['checks']['executed']} of {document['checks']['expected']}" in page
    for entry in document["deviations"]["entries"]:
        assert f"| `{entry['check']}` | {entry['reason']} |" in page
    assert document["environment"]["nonce"] not in page and document["environment"]["date"] not in page


def test_a_page_that_differs_is_told(reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--check passes on the page that the reports make, fails on another one, and writes nothing (FID-1)."""
    page = tmp_path / "page.md"
    assert main([str(reports), "--page", str(page), "--check"]) == 1
    assert not page.exists()
    assert main([str(reports), "--page", str(page)]) == 0
    assert main([str(reports), "--page", str(page), "--check"]) == 0
    page.write_text("by hand", encoding="utf-8")
    assert main([str(reports), "--page", str(page), "--check"]) == 1
    assert "differs" in capsys.readouterr().err


def test_altered_and_missing_reports_are_refused(reports: Path, tmp_path: Path) -> None:
    """An altered report, or a folder without one, gives no page (PROT-9)."""
    path = reports / "one" / "report.json"
    path.write_text(path.read_text(encoding="utf-8").replace("nonconformant", "conformant"), encoding="utf-8")
    assert main([str(reports), "--page", str(tmp_path / "page.md")]) == 1
    with pytest.raises(Refusal) as caught:
        load_reports(tmp_path)
    assert caught.value.code == "kit_report_invalid"
