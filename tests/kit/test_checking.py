"""The engine over a real sink: JSONLSink passes, and broken subjects end in words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reference_sinks import JSONLSink
from reference_sinks.readers import read_jsonl
from torchlens_conformance.kit.checking import run_checks
from torchlens_conformance.kit.checks import CHECKS
from torchlens_conformance.kit.model import COULD_NOT_RUN, FAILED, NOT_DECLARED, PASSED
from torchlens_conformance.kit.processes import Limits
from torchlens_conformance.kit.reading import import_path, read_place
from torchlens_conformance.kit.subject import Subject
from torchlens_conformance.protocol import Refusal, ScalarPoint


def open_jsonl(place: Path) -> JSONLSink:
    """Open a sink in the folder."""
    return JSONLSink(place / "points.jsonl")


def read_folder(place: Path) -> Any:
    """Read the file in the folder."""
    return read_jsonl(place / "points.jsonl")


JSONL = Subject(name="JSONLSink", open=open_jsonl, read=read_folder)


def test_the_jsonl_sink_passes_every_check() -> None:
    """Our own sink passes all checks in small size (PROT-1, PROT-6, PROT-9, PROT-10, PROT-11, JSONL-1..4)."""
    outcome = run_checks(JSONL)
    assert {result.check: result.findings for result in outcome.results if result.outcome != PASSED} == {}
    assert outcome.executed == outcome.expected == len(CHECKS)


def test_only_what_the_checks_need_is_run() -> None:
    """Asking one check runs its scenarios and no others (PROT-1)."""
    outcome = run_checks(JSONL, checks=["teardown.close-twice"])
    assert list(outcome.transcripts) == ["close-twice"]
    assert [result.check for result in outcome.results] == ["teardown.close-twice"]


def test_an_unknown_check_is_refused_before_anything_runs() -> None:
    """A misspelt check is refused by name (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        run_checks(JSONL, checks=["values.colour"])
    assert caught.value.code == "kit_check_unknown"


def test_a_declared_part_is_all_that_is_sent() -> None:
    """Only points of declared capabilities are sent; checks of the others are not asked (PROT-2)."""
    narrow = Subject(name="narrow", open=open_jsonl, read=read_folder, capabilities=["scalar"])
    outcome = run_checks(narrow, checks=["values.scalar", "values.text"])
    assert [result.outcome for result in outcome.results] == [PASSED, NOT_DECLARED]
    assert {type(point) for point in outcome.transcripts["round-trip"].sent} == {ScalarPoint}
    assert (outcome.expected, outcome.executed) == (1, 1)


def test_declaring_nothing_answers_nothing() -> None:
    """A subject that declares no capability has checks that could not run (PROT-2)."""
    empty = Subject(name="empty", open=open_jsonl, read=read_folder, capabilities=[])
    (result,) = run_checks(empty, checks=["delivery.nothing-lost"]).results
    assert result.outcome == COULD_NOT_RUN


def _hang(place: Path) -> Any:
    import signal

    signal.pause()


def _exit(place: Path) -> Any:
    os._exit(0)


def _raise(place: Path) -> Any:
    raise OSError("no such tracker")


@pytest.mark.parametrize(
    ("function", "words", "timeout"),
    [(_hang, "timed out", 0.4), (_exit, "exit code 0", 60.0), (_raise, "no such tracker", 60.0)],
)
def test_a_broken_open_is_a_finding(function: Any, words: str, timeout: float) -> None:
    """A sink that hangs, exits or raises in open fails with a sentence that says so (PROT-9)."""
    subject = Subject(name="broken", open=function, read=read_folder)
    outcome = run_checks(subject, checks=["delivery.nothing-lost"], timeout=timeout)
    (result,) = outcome.results
    assert result.outcome == FAILED
    assert words in result.findings[0].message


def test_a_reader_is_imported_afresh_where_it_can_be(tmp_path: Path) -> None:
    """A reader with a name is read in a new interpreter, a nameless one in a forked process (FID-1)."""
    sink = open_jsonl(tmp_path)
    sink.emit_scalar(ScalarPoint("a", 1, 0.1))
    sink.close()
    named = read_place(read_jsonl, tmp_path / "points.jsonl", limits=Limits(), fresh=True)
    nameless = read_place(lambda place: read_folder(place), tmp_path, limits=Limits(), fresh=True)
    assert (named.how, nameless.how) == ("fresh process", "forked process")
    assert named.points == nameless.points == (ScalarPoint("a", 1, 0.1),)
    assert import_path(read_jsonl) == ("reference_sinks.readers.jsonl", "read_jsonl")


@pytest.mark.parametrize("answer", [[1, 2], None, "points"])
def test_a_reader_that_gives_no_points_is_told(tmp_path: Path, answer: Any) -> None:
    """What is no point is an error of the reader, not a crash of ours (FID-1)."""
    back = read_place(lambda place: answer, tmp_path, limits=Limits())
    assert back.points is None and back.error
