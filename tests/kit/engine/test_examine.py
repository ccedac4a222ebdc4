"""Examining an engine: controls, verdicts, the report, adapters, the command and the page of the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from tests.kit.engine.examples import HELD, results
from torchlens_conformance.kit.engine import examine as examining
from torchlens_conformance.kit.engine import kill_matrix
from torchlens_conformance.kit.engine.adapter import ABILITIES
from torchlens_conformance.kit.engine.adapters import find_engine, require_engine
from torchlens_conformance.kit.engine.adapters.torchlens import named_skip
from torchlens_conformance.kit.engine.asking import Answer, ask, judged, missing_ability
from torchlens_conformance.kit.engine.command import engine as command
from torchlens_conformance.kit.engine.defects import DEFECTS, get_defect
from torchlens_conformance.kit.engine.examine import examine
from torchlens_conformance.kit.engine.judging import judge
from torchlens_conformance.kit.engine.laws import LAWS, get_law
from torchlens_conformance.kit.engine.plain_engine import PlainEngine
from torchlens_conformance.kit.engine.report_text import as_table, write_engine_report
from torchlens_conformance.kit.model import (
    COULD_NOT_RUN,
    FAILED,
    NOT_APPLICABLE,
    NOT_DECLARED,
    PASSED,
    CheckResult,
    ControlResult,
)
from torchlens_conformance.kit.report import document_digest
from torchlens_conformance.kit.verify import load_report
from torchlens_conformance.protocol import Refusal

DOCS = Path(__file__).parents[3] / "docs"
QUICK = ("step.increasing", "values.counts", "amp.derived", "attach.clean")


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


def test_every_ability_has_a_law() -> None:
    """What an engine lacks is told by a law that is not declared, never by a scenario that is left out (PROT-1)."""
    for word in ABILITIES:
        lacking = PlainEngine(word, lacks={word: "it cannot"})
        told = [law for law in LAWS if missing_ability(law, lacking)]
        assert told, word


def test_what_this_machine_cannot_ask_is_not_applicable() -> None:
    """A law whose scenario cannot run here is not applicable, with the reason (PROT-1)."""
    law = get_law("parallel.ranks")
    away = judged(law, PlainEngine(), {"data-parallel": Answer({}, absent="no torch.distributed")})
    assert (away.outcome, away.reason) == (NOT_APPLICABLE, "no torch.distributed")
    stuck = judged(law, PlainEngine(), {"data-parallel": Answer({}, "timed out")})
    assert stuck.outcome == COULD_NOT_RUN


def test_a_control_of_a_law_that_is_not_applicable_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect that nobody can ask about here does not make a run void, and the report says so (PROT-1)."""
    index = 1 + [defect.id for defect in DEFECTS].index("every-rank")
    law = get_law("parallel.ranks")
    monkeypatch.setattr(
        examining, "ask", lambda *_: [CheckResult(law.id, law.clauses, NOT_APPLICABLE, reason="no gloo")]
    )
    control = examining._control(index)
    assert control.ok and control.seen == "not applicable: no gloo"


def test_the_verdict_follows_from_what_was_seen() -> None:
    """Void, nonconformant, incomplete, with deviations and conformant, in this order (STEP-1)."""
    broken = (ControlResult("defect: null", "fail", "passed", False),)
    failed, stuck, held = results(step_source=FAILED), results(step_source=COULD_NOT_RUN), results()
    for lacks, seen, controls, partial_run, verdict in (
        ([], failed, broken, False, "void"),
        ([], held, (), False, "void"),
        ([], failed, HELD, False, "nonconformant"),
        ([], stuck, HELD, False, "incomplete"),
        ([], held[:3], HELD, True, "incomplete"),
        ([], held[:3], HELD, False, "incomplete"),
        (["amp"], results(amp_scale=NOT_DECLARED), HELD, False, "with-deviations"),
        ([], held, HELD, False, "conformant"),
    ):
        assert judge(lacks, seen, controls, partial_run=partial_run)[0] == verdict


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


def test_another_measurement_is_told_by_defect_and_law() -> None:
    """What differs from the committed matrix is named, so that one law that wavers can be found (STEP-1)."""
    committed, measured = {"a": ("x", "z"), "b": ("x",)}, {"a": ("y", "z"), "b": ("x",), "c": ("x",)}
    assert kill_matrix.differences(committed, measured) == ["a: + y, - x", "c: + x"]


@pytest.mark.kit_full
@pytest.mark.timeout(7200)
def test_a_new_measurement_gives_the_committed_matrix() -> None:
    """Measuring all defects again gives the committed matrix (STEP-1)."""
    matrix = kill_matrix.from_data(kill_matrix.DATA_FILE.read_text(encoding="utf-8"))
    assert kill_matrix.measure(defect.id for defect in DEFECTS) == matrix


def test_the_adapter_of_the_page_works(tmp_path: Path) -> None:
    """The adapter on the page, as it stands there, is examined, and its report verifies (STEP-2, CLOSE-1)."""
    text = (DOCS / "engine-kit.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    assert len([line for line in found.group(1).splitlines() if line]) <= 25
    names: dict[str, Any] = {}
    exec(compile(found.group(1), "engine-kit.md", "exec"), names)
    engine = require_engine("page:ENGINE", names["ENGINE"])
    laws = ["step.increasing", "step.optimizers", "ledger.balance", "environment.disables", "transfer.plan"]
    report = examine(engine, laws=laws, controls=HELD)
    outcomes = {result.check: result.outcome for result in report.results}
    assert [outcomes[law] for law in laws] == [PASSED, NOT_DECLARED, PASSED, PASSED, NOT_DECLARED]
    load_report(write_engine_report(report.document, tmp_path)["report.json"])
