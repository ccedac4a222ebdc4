"""The page of certificates is made from verified reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from torchlens_conformance.kit.certificates import PAGE, as_page, escaped, load_reports, main, refusals
from torchlens_conformance.kit.checking import run_checks
from torchlens_conformance.kit.conclude import Observed, conclude
from torchlens_conformance.kit.report import write_report
from torchlens_conformance.protocol import Refusal

from .report_examples import CONTROLS, FACTS, PROFILE, report, results


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


def _refusing(**reasons: str) -> Mapping[str, Any]:
    """Return the document of a report in which checks pass beside refused points."""
    told = {key.replace("_", ".", 1): reason for key, reason in reasons.items()}
    answers = tuple(replace(result, reason=told.get(result.check, result.reason)) for result in results())
    return conclude(FACTS, PROFILE, Observed(answers, CONTROLS, ("scalar",), "n1", 7)).document


def test_what_a_passing_sink_refuses_stands_on_the_page() -> None:
    """A conformant sink that refuses legal points is shown with them, each once, in the report's own words (PROT-9)."""
    said = "2 legal points were refused with a code: tracker_value_unsupported: nan, inf"
    document = _refusing(values_scalar=said, values_steps=said, tags_unchanged="1 was: tracker_tag_unsafe: 'a|b<c>`'")
    assert refusals(document) == {"scalar": said, "tags": "1 was: tracker_tag_unsafe: 'a|b<c>`'"}
    page = as_page({"one": document})
    (row,) = [line for line in page.splitlines() if line.startswith("| **")]
    assert "| conformant |" in row and "| scalar, tags |" in row
    assert page.count(escaped(said)) == 1
    assert r"'a\|b\<c\>\`'" in page
    (plain,) = [line for line in as_page({"one": _refusing()}).splitlines() if line.startswith("| **")]
    assert "| nothing |" in plain


_NONCE = "n0123456789ab"


@pytest.mark.trackers
@pytest.mark.parametrize(
    ("subject", "package", "refused"),
    [
        ("MLFLOW", "mlflow", {"values.scalar": "-0.0, inf, -inf, 9007199254740993", "tags.unchanged": "'unsafe/"}),
        ("CLEARML", "clearml", {"values.scalar": "nan, inf, -inf, 9007199254740993"}),
        ("WANDB", "wandb", {"values.histogram": "513 buckets, 2048 buckets"}),
        ("COMET", "comet_ml", {"tags.unchanged": "(270 characters)"}),
        ("TENSORBOARD", "tensorboard", {"values.histogram": "counts up to 9223372036854775807 in 5 buckets"}),
    ],
)
def test_the_committed_page_names_what_is_refused_now(subject: str, package: str, refused: dict[str, str]) -> None:
    """What a first-party sink refuses when it is asked again is what the page says (PROT-9, POINT-3)."""
    pytest.importorskip(package)
    found = getattr(import_module("torchlens_conformance.kit.subjects"), subject)
    page = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    section = page.split(f"\n## {found.name}\n")[1].split("\n## ")[0]
    for result in run_checks(found, checks=refused, nonce=_NONCE).results:
        assert refused[result.check] in result.reason
        assert f"| {escaped(result.reason.replace(_NONCE, 'NONCE'))} |" in section
