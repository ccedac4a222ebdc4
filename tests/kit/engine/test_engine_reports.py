"""Reports of engines: valid, digested, verified and written like those of sinks."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from tests.kit.engine.examples import FINDING, HELD, report
from torchlens_conformance.cli import cli
from torchlens_conformance.kit.checks import CHECKS
from torchlens_conformance.kit.engine import examine as examining
from torchlens_conformance.kit.engine.defects import get_defect
from torchlens_conformance.kit.engine.examine import examine
from torchlens_conformance.kit.engine.laws import LAWS
from torchlens_conformance.kit.engine.plain_engine import PlainEngine
from torchlens_conformance.kit.engine.profile import engine_profile
from torchlens_conformance.kit.engine.report_text import write_engine_report
from torchlens_conformance.kit.html import report_page
from torchlens_conformance.kit.junit import junit_xml
from torchlens_conformance.kit.model import COULD_NOT_RUN, FAILED, NOT_APPLICABLE, NOT_DECLARED
from torchlens_conformance.kit.report import canonical, document_digest
from torchlens_conformance.kit.verify import load_report, problems_of
from torchlens_conformance.protocol import Refusal

LACKING = PlainEngine("no <module>", lacks={"activations": "it sees no modules"})


def test_a_real_report_verifies(tmp_path: Path) -> None:
    """What a real run writes matches its schema, digest, counts and verdict (STEP-2, PROT-1)."""
    made = examine(get_defect("repeats-step").engine, laws=["step.increasing"], controls=HELD)
    paths = write_engine_report(made.document, tmp_path)
    names = ["badge.json", "junit.xml", "report.html", "report.json", "report.txt", "table.md"]
    assert sorted(paths) == names == sorted(path.name for path in tmp_path.iterdir())
    assert load_report(paths["report.json"])["verdict"] == "nonconformant"
    assert made.document["profile"]["chosen"] == ["step.increasing"]


def test_every_outcome_verifies() -> None:
    """All outcomes and all spellings of an adapter give a document that holds (PROT-1)."""
    for made in (
        report(),
        report(LACKING, module_values=NOT_DECLARED),
        report(step_source=FAILED),
        report(compiled_graphs=NOT_APPLICABLE),
        report(step_source=COULD_NOT_RUN),
    ):
        assert problems_of(made.document, canonical(made.document)) == []
    assert report(compiled_graphs=NOT_APPLICABLE).why.endswith("1 cannot be asked on this machine.")


@pytest.mark.parametrize(
    ("change", "redigest", "word"),
    [
        (lambda document: document["environment"].update(host="elsewhere"), False, "digest"),
        (lambda document: document.update(verdict="conformant"), True, "follows"),
        (lambda document: document["checks"].update(failed=0), True, "counts"),
        (lambda document: document["results"].pop(), True, "counts"),
        (lambda document: document["results"][0].update(check="step.other"), True, "laws are not"),
        (lambda document: document["results"][0].update(level="should"), True, "level"),
        (lambda document: document["profile"].update(digest="sha256:" + "0" * 64), True, "digest of its profile"),
        (lambda document: document["profile"].update(id="2026.1"), True, "not known"),
        (lambda document: document.update(controls=[]), True, "follows"),
        (lambda document: document.update(deviations={}), True, "schema"),
        (lambda document: document["subject"].update(reference="plain"), True, "schema"),
        (lambda document: document["environment"].pop("versions"), True, "schema"),
        (lambda document: document.update(version=2), True, "schema"),
        (lambda document: document.update(format="torchlens-conformance.report"), True, "schema"),
    ],
)
def test_altered_reports_do_not_verify(change: Callable[[Any], Any], redigest: bool, word: str) -> None:
    """An altered report of an engine is found out, also when its digest was made anew (PROT-1)."""
    document = json.loads(canonical(report(step_source=FAILED).document))
    change(document)
    if redigest:
        document["digest"] = document_digest(document)
    assert word in " ".join(problems_of(document))


def test_the_page_speaks_of_engines_and_laws() -> None:
    """The page is that of sinks with other words: abilities, reasons, findings, the command to ask again (PROT-1)."""
    page = report_page(report(LACKING, step_source=FAILED, module_values=NOT_DECLARED).document)
    for text in (
        "laws executed",
        "Something that an engine must do does not hold.",
        "not declared: it sees no modules",
        "no &lt;module&gt;",
        "Sent &lt;b&gt;1&lt;/b&gt;",
        "torchlens-conformance engine plain --laws step.source",
        "engines with one planted fault each must fail by the laws named for it",
    ):
        assert text in page, text
    assert "sink" not in page.partition("</style>")[2] and FINDING.message not in page


def test_junit_and_badge(tmp_path: Path) -> None:
    """A case a law with the words apart, and a badge that says what was examined (PROT-1)."""
    made = report(step_source=FAILED, module_values=NOT_DECLARED, compiled_graphs=NOT_APPLICABLE)
    suite = ElementTree.fromstring(junit_xml(made.document).encode())[0]
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds["step.source"] == ["failure"]
    assert kinds["module.values"] == kinds["compiled.graphs"] == ["skipped"]
    assert suite.get("tests") == str(len(LAWS) + 2)
    badge = json.loads(write_engine_report(made.document, tmp_path)["badge.json"].read_text(encoding="utf-8"))
    assert badge["label"] == "torchlens engine 2026.1" and badge["message"].startswith("nonconformant (")


def test_verify_on_the_command_line(tmp_path: Path) -> None:
    """``verify`` exits 0 for an unaltered report of an engine, and 2 for an altered one (PROT-1)."""
    path = write_engine_report(report(step_source=FAILED).document, tmp_path)["report.json"]
    whole = CliRunner().invoke(cli, ["verify", str(path)], standalone_mode=False)
    assert whole.return_value == 0 and f"{len(LAWS)} of {len(LAWS)} laws executed" in whole.output
    path.write_text(path.read_text(encoding="utf-8").replace("nonconformant", "conformant"), encoding="utf-8")
    assert CliRunner().invoke(cli, ["verify", str(path)], standalone_mode=False).return_value == 2


@pytest.mark.parametrize(("then", "code"), [("passed", 0), (FAILED, 1)])
def test_replay_asks_the_law_again(then: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``replay`` asks one law of the adapter again and compares: 0 for the same, 1 for another outcome (PROT-1)."""
    monkeypatch.setattr(examining, "run_controls", lambda: HELD)
    path = write_engine_report(report(step_source=then).document, tmp_path)["report.json"]
    again = CliRunner().invoke(cli, ["replay", str(path), "step.source"], standalone_mode=False)
    assert again.return_value == code
    assert f"step.source: {then} in the report, passed now" in again.output


def test_replay_refuses_what_is_no_law(tmp_path: Path) -> None:
    """A check of sinks is no law of engines (PROT-9)."""
    path = write_engine_report(report().document, tmp_path)["report.json"]
    again = CliRunner().invoke(cli, ["replay", str(path), "reader.fresh"], standalone_mode=False)
    assert isinstance(again.exception, Refusal) and again.exception.code == "kit_check_unknown"


def test_list_and_explain_know_laws() -> None:
    """``list --engine`` shows every law and what it kills, and ``explain`` says what one asks (PROT-1)."""
    shown = CliRunner().invoke(cli, ["list", "--engine"], standalone_mode=False).output.splitlines()
    assert [line.split()[0] for line in shown[:-1]] == [law.id for law in LAWS]
    assert "one-stage" in next(line for line in shown if line.startswith("amp.several"))
    assert engine_profile().digest in shown[-1]
    told = CliRunner().invoke(cli, ["explain", "amp.several"], standalone_mode=False).output
    for text in ("AMP-6: ", "one-stage: Reads the stage of the first optimizer", "declare amp, several-optimizers"):
        assert text in told


def test_a_name_is_a_check_or_a_law() -> None:
    """No check of sinks and no law of engines have one id, so that one command explains both (PROT-1)."""
    assert not {check.id for check in CHECKS} & {law.id for law in LAWS}
