"""Examining an engine: controls, verdicts, the report, adapters, the command and the page of the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from torchlens_conformance.kit.engine import kill_matrix
from torchlens_conformance.kit.engine.adapters import find_engine, require_engine
from torchlens_conformance.kit.engine.adapters.torchlens import named_skip
from torchlens_conformance.kit.engine.asking import ask
from torchlens_conformance.kit.engine.command import engine as command
from torchlens_conformance.kit.engine.defects import DEFECTS, get_defect
from torchlens_conformance.kit.engine.examine import examine, judge
from torchlens_conformance.kit.engine.laws import LAWS, get_law
from torchlens_conformance.kit.engine.plain_engine import PlainEngine
from torchlens_conformance.kit.engine.report_text import as_table, write_engine_report
from torchlens_conformance.kit.model import COULD_NOT_RUN, FAILED, NOT_DECLARED, PASSED, CheckResult, ControlResult
from torchlens_conformance.kit.report import document_digest
from torchlens_conformance.protocol import Refusal

DOCS = Path(__file__).parents[3] / "docs"
HELD = (ControlResult("perfect: plain", "pass", "passed", True),)
QUICK = ("step.increasing", "values.counts", "amp.derived", "attach.clean")


def results(outcome: str) -> list[CheckResult]:
    """Return every law with one outcome for the first and passed for the others."""
    return [CheckResult(law.id, law.clauses, PASSED if number else outcome) for number, law in enumerate(LAWS)]


def test_the_plain_engine_keeps_the_laws() -> None:
    """The perfect control passes the laws that are quick to ask (STEP-2, GRID-2, AMP-3, ATTACH-6)."""
    assert [result.outcome for result in ask(PlainEngine(), [get_law(law) for law in QUICK])] == [PASSED] * len(QUICK)


@pytest.mark.parametrize("defect", ["repeats-step", "counts-by-float32", "unscaled-asserted", "leaked-hook"])
def test_a_defect_fails_by_the_law_named_for_it(defect: str) -> None:
    """A planted defect fails by its law, and not by a crash of the kit (STEP-2, GRID-2, AMP-3, CLOSE-3)."""
    planted = get_defect(defect)
    asked = ask(planted.engine, [get_law(law) for law in planted.killed_by])
    assert [result.outcome for result in asked] == [FAILED] * len(planted.killed_by)


class Crashing(PlainEngine):
    """Ends its process when it attaches."""

    def attach(self, model: Any, sinks: Any, ask: Any) -> Any:
        """Be gone."""
        import os

        os._exit(3)


def test_an_engine_that_ends_the_process_could_not_run() -> None:
    """A crash is neither a pass nor a failure of a law, and harms nobody (STEP-1)."""
    (result,) = ask(Crashing(), [get_law("step.source")])
    assert result.outcome == COULD_NOT_RUN and "exit code 3" in result.reason


def test_what_is_not_declared_is_not_asked() -> None:
    """A law about an ability that is lacking is not declared, with the reason (STEP-11)."""
    lacking = PlainEngine("one", lacks={"several-optimizers": "it takes one"})
    (result,) = ask(lacking, [get_law("step.optimizers")])
    assert (result.outcome, result.reason) == (NOT_DECLARED, "several-optimizers: it takes one")


def test_the_verdict_follows_from_what_was_seen() -> None:
    """Void, nonconformant, incomplete, with deviations and conformant, in this order (STEP-1)."""
    plain, broken = PlainEngine(), (ControlResult("defect: null", "fail", "passed", False),)
    assert judge(plain, results(FAILED), broken, partial_run=False)[0] == "void"
    assert judge(plain, results(PASSED), (), partial_run=False)[0] == "void"
    assert judge(plain, results(FAILED), HELD, partial_run=False)[0] == "nonconformant"
    assert judge(plain, results(COULD_NOT_RUN), HELD, partial_run=False)[0] == "incomplete"
    assert judge(plain, results(PASSED)[:3], HELD, partial_run=True)[0] == "incomplete"
    assert (
        judge(PlainEngine(lacks={"amp": "no"}), results(NOT_DECLARED), HELD, partial_run=False)[0] == "with-deviations"
    )
    assert judge(plain, results(PASSED), HELD, partial_run=False)[0] == "conformant"


def test_a_report_is_written(tmp_path: Path) -> None:
    """The report has counts first, a digest that holds, a text and a table (STEP-2)."""
    report = examine(get_defect("repeats-step").engine, laws=["step.increasing"], controls=HELD)
    assert (report.verdict, report.exit_code, report.executed) == ("nonconformant", 1, 1)
    paths = write_engine_report(report.document, tmp_path)
    document = json.loads(paths["report.json"].read_text(encoding="utf-8"))
    assert document["digest"] == document_digest(document) and next(iter(document)) == "checks"
    assert "watch_step_regression" in paths["report.txt"].read_text(encoding="utf-8")
    assert as_table(document).count("\n") == 3


def test_adapters_are_found_or_refused() -> None:
    """A short name, a path, and what is no adapter (PROT-9)."""
    assert find_engine("plain").name == "plain"
    for target, code in (("nowhere.at:ALL", "kit_subject_not_found"), ("json:nothing", "kit_subject_not_found")):
        with pytest.raises(Refusal) as caught:
            find_engine(target)
        assert caught.value.code == code
    with pytest.raises(Refusal, match="kit_subject_invalid"):
        require_engine("x:Y", object())


def test_the_command_refuses_an_unknown_law() -> None:
    """A law that does not exist is wrong usage, before anything runs (PROT-9)."""
    run = CliRunner().invoke(command, ["plain", "--laws", "step.nothing"], standalone_mode=False)
    assert isinstance(run.exception, Refusal) and run.exception.code == "kit_check_unknown"


def test_a_skip_told_as_a_sentence_is_read() -> None:
    """Name and step come out of the sentence of torchlens (STEP-7)."""
    assert named_skip("amp_skipped: step 13 (scale decrement observed)") == ("amp_skipped", 13)
    assert named_skip("phase_missing") == ("phase_missing", None)


def test_the_committed_kill_matrix_is_right() -> None:
    """Every defect is caught by its laws, every law catches one, and the page holds the matrix (STEP-1)."""
    matrix = kill_matrix.from_data(kill_matrix.DATA_FILE.read_text(encoding="utf-8"))
    assert kill_matrix.problems(matrix) == [] and len(DEFECTS) >= 15
    assert kill_matrix.as_data(matrix) == kill_matrix.DATA_FILE.read_text(encoding="utf-8")
    if kill_matrix.PAGE_FILE.exists():
        assert kill_matrix.as_section(matrix) in kill_matrix.PAGE_FILE.read_text(encoding="utf-8")


@pytest.mark.kit_full
@pytest.mark.timeout(1800)
def test_a_new_measurement_gives_the_committed_matrix() -> None:
    """Measuring all defects again gives the committed matrix (STEP-1)."""
    matrix = kill_matrix.from_data(kill_matrix.DATA_FILE.read_text(encoding="utf-8"))
    assert kill_matrix.measure(defect.id for defect in DEFECTS) == matrix


def test_the_adapter_of_the_page_works() -> None:
    """The adapter on the page, as it stands there, is asked and answers (STEP-2)."""
    text = (DOCS / "engine-kit.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found.group(1), "engine-kit.md", "exec"), names)
    asked = ask(
        require_engine("page:ENGINE", names["ENGINE"]), [get_law("step.increasing"), get_law("step.optimizers")]
    )
    assert [result.outcome for result in asked] == [PASSED, NOT_DECLARED]
