"""Broken subjects end in a verdict with a clear sentence, never in a traceback of ours or a hang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.kit import broken_subjects
from tests.kit.report_examples import CONTROLS, PROFILE
from tests.kit.test_plugin import run
from torchlens_conformance.cli import cli
from torchlens_conformance.kit.certify import certify, observe
from torchlens_conformance.kit.conclude import conclude, describe
from torchlens_conformance.kit.keepers import children_of
from torchlens_conformance.kit.model import CONFORMANT, COULD_NOT_RUN, NONCONFORMANT, Report
from torchlens_conformance.kit.subject import Subject
from torchlens_conformance.kit.verify import problems_of

CHECK = "values.scalar"

SENTENCES = {
    "RAISES": "RuntimeError: no such store",
    "EXITS": "exit code 0",
    "QUITS": "SystemExit",
    "INTERRUPTS": "KeyboardInterrupt",
    "RAISES_IN_EMIT": "no room for points",
    "QUITS_IN_EMIT": "the sink has had enough",
    "EXITS_IN_EMIT": "after open had returned: exit code 0",
    "FLOODS": "printed more than 16 MB",
    "EATS_MEMORY": "took more than 1024 MB of memory",
    "READER_RAISES": "ValueError: no such column",
    "READER_GARBAGE": "objects that are no points",
    "READER_NONE": "'NoneType' object is not iterable",
    "READER_QUITS": "SystemExit",
}
"""What the verdict's sentence says, by the subject."""


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controls held: they are tested where they stand, and take seconds."""
    monkeypatch.setattr(sys.modules["torchlens_conformance.kit.certify"], "prove", lambda profile: CONTROLS[:2])


def judged(subject: Subject, *, timeout: float) -> Report:
    """Return the report of the whole profile, with little patience."""
    observed = observe(subject, PROFILE, controls=CONTROLS[:2], timeout=timeout)
    return conclude(describe(subject, observed.words), PROFILE, observed)


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("name", SENTENCES)
def test_certify_says_what_is_wrong(name: str) -> None:
    """A broken sink or reader is nonconformant, and the sentence says what it did (PROT-10)."""
    report = certify(getattr(broken_subjects, name), checks=[CHECK])
    assert (report.verdict, report.exit_code) == (NONCONFORMANT, 1)
    assert SENTENCES[name] in report.why
    assert problems_of(report.document) == []


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("name", ["RAISES", "EXITS_IN_EMIT", "FLOODS", "READER_GARBAGE"])
def test_the_command_line_says_what_is_wrong(name: str) -> None:
    """The command line exits 1 with the same sentence (PROT-10)."""
    arguments = ["certify", f"tests.kit.broken_subjects:{name}", "--check", CHECK]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert done.exception is None
    assert done.return_value == 1
    assert ": nonconformant." in done.output
    assert SENTENCES[name] in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("name", ["HANGS_IN_OPEN", "HANGS_IN_EMIT", "HANGS_IN_CLOSE", "HANGS_IN_READER"])
def test_a_hang_is_bounded(name: str) -> None:
    """A subject that always hangs is waited for once, named where, and soon not started any more (PROT-10)."""
    report = judged(getattr(broken_subjects, name), timeout=1.0)
    assert report.verdict == NONCONFORMANT
    assert "It hung in wait_forever (broken_subjects.py, line " in report.why
    stuck = [result for result in report.results if result.outcome == COULD_NOT_RUN]
    assert stuck and all("no more are tried" in result.reason for result in stuck)


@pytest.mark.usefixtures("proven")
def test_chatter_is_no_fault() -> None:
    """A sink that prints two megabytes and works is not held to account for it (PROT-10)."""
    report = certify(broken_subjects.CHATS, checks=[CHECK])
    assert [result.outcome for result in report.results] == ["passed"]


def left_behind() -> list[int]:
    """Return the processes that say of themselves that they were left behind."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"left-behind" in Path("/proc", name, "cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("proven")
def test_no_process_is_left() -> None:
    """A daemon that a sink started, in a session of its own and without our pipes, ends with its scenario (PROT-10)."""
    before = set(children_of(os.getpid()))
    report = certify(broken_subjects.LEAVES_PROCESSES, checks=[CHECK])
    assert [result.outcome for result in report.results] == ["passed"]
    assert left_behind() == []
    assert set(children_of(os.getpid())) == before


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("name", ["NULL", "TELLING", "CONSTANT", "UNDECLARED"])
def test_nothing_passes_by_doing_nothing(name: str) -> None:
    """A sink that does nothing is not conformant by any choice of checks, and the sentence says why (PROT-1, FID-1)."""
    report = certify(getattr(broken_subjects, name), checks=["surface.words", "surface.methods"])
    assert report.verdict != CONFORMANT
    assert "reader does not report" in report.why or "o capability is declared" in report.why


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("raise SystemExit(0)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os._exit(0)", "exit code 0"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("while True: print('x' * 65536)", "printed more than"),
    ],
)
def test_modules_that_break_the_import(
    content: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subject that cannot be imported is incomplete with a sentence, exit code 2 (PROT-10)."""
    (tmp_path / "breaking.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(cli, ["certify", "breaking:SUBJECT"], standalone_mode=False)
    assert done.exception is None
    assert done.return_value == 2
    assert "breaking:SUBJECT: incomplete. breaking:SUBJECT could not be imported: " in done.output
    assert word in done.output


@pytest.mark.parametrize(
    "mark", ["pytest.skip('not today', allow_module_level=True)", "pytest.importorskip('no_such')"]
)
def test_a_module_that_skips(mark: str, tmp_path: Path) -> None:
    """A module that skips itself earns no certificate, and the run does not succeed (PROT-1)."""
    code, text = run(tmp_path, mark=mark)
    assert code != 0
    assert "conformant" not in text
    assert not (tmp_path / "report").exists()
