"""Planted defects are caught, correct sinks are not."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from torchlens_conformance.kit.checking import run_checks
from torchlens_conformance.kit.checks import CHECKS
from torchlens_conformance.kit.corpus import ordinary_points
from torchlens_conformance.kit.defects import DEFECTS, Defect, PlainSink, get_defect, read_plain
from torchlens_conformance.kit.defects.random_defects import random_defect, recipe
from torchlens_conformance.kit.defects.random_transformations import CHANGES
from torchlens_conformance.kit.model import COULD_NOT_RUN, FAILED
from torchlens_conformance.kit.perfect import PERFECT, Perfect
from torchlens_conformance.kit.reading import import_path
from torchlens_conformance.kit.subject import Subject
from torchlens_conformance.protocol import CAPABILITY_METHODS, Refusal

from .correct_sinks import CORRECT

_STREAM_SCENARIOS = {"round-trip", "order", "tags"}
_STREAM_CHECKS = [check.id for check in CHECKS if _STREAM_SCENARIOS.issuperset(check.scenarios)]


def _wrong(subject: Subject) -> list[str]:
    return [
        f"{result.check}: {'; '.join(finding.message for finding in result.findings) or result.reason}"
        for result in run_checks(subject).results
        if result.outcome in (FAILED, COULD_NOT_RUN)
    ]


@pytest.mark.parametrize("perfect", PERFECT, ids=lambda perfect: perfect.id)
def test_perfect_subjects_pass_every_check(perfect: Perfect) -> None:
    """A subject without a fault passes every check of the kit (JSONL-1, PROT-10)."""
    assert _wrong(perfect.subject) == []


@pytest.mark.kit_full
@pytest.mark.parametrize("subject", CORRECT, ids=lambda subject: subject.name)
def test_correct_sinks_of_any_design_pass_every_check(subject: Subject) -> None:
    """A correct sink passes whatever its design is: text, binary, database, thread, process (PROT-10)."""
    assert _wrong(subject) == []


@pytest.mark.parametrize("name", ["float32-cast", "step-off-by-one", "needs-flush", "unknown-word", "null"])
def test_a_planted_defect_fails_by_the_check_named_for_it(name: str) -> None:
    """A planted defect is caught by the checks that it was planted for (POINT-3, PROT-6)."""
    defect = get_defect(name)
    results = run_checks(defect.subject, checks=defect.killed_by).results
    assert [result.outcome for result in results] == [FAILED] * len(defect.killed_by)


@pytest.mark.kit_full
@pytest.mark.parametrize("start", range(0, 500, 50))
def test_random_defects_are_all_caught(start: int) -> None:
    """Every defect made at random fails at least one check of the stream (POINT-2, POINT-3, TAG-3)."""
    missed = []
    for seed in range(start, start + 50):
        defect = random_defect(seed)
        results = run_checks(defect.subject, checks=_STREAM_CHECKS).results
        if not any(result.outcome == FAILED for result in results):
            missed.append(f"{seed}: {defect.idea}")
    assert missed == []


def test_a_random_defect_is_the_same_for_the_same_seed() -> None:
    """A seed says all about a random defect, so that a missed one can be looked at (POINT-2)."""
    assert [recipe(seed) for seed in range(40)] == [recipe(seed) for seed in range(40)]
    assert len({recipe(seed) for seed in range(200)}) > 120


def test_random_defects_reach_every_kind_and_field() -> None:
    """Random defects change every field of every kind of point, and lose and double whole points (POINT-1)."""
    wanted = {(kind, field) for kind, fields in CHANGES.items() for field in [*fields, "whole point"]}
    assert {(recipe(seed).kind, recipe(seed).field) for seed in range(500)} == wanted


def test_every_defect_has_an_id_an_idea_and_known_checks() -> None:
    """The list of defects is in order: ids once, one sentence each, checks that exist (PROT-9)."""
    known = {check.id for check in CHECKS}
    assert len({defect.id for defect in DEFECTS}) == len(DEFECTS) >= 33
    for defect in DEFECTS:
        assert defect.killed_by, defect.id
        assert defect.idea.endswith("."), defect.id
        assert not set(defect.killed_by) & set(defect.also), defect.id
        assert known.issuperset({*defect.killed_by, *defect.also}), defect.id


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.id)
def test_every_defect_can_be_imported_and_pickled(defect: Defect) -> None:
    """Sink and reader of a defect have names that a fresh process can import (FID-1)."""
    assert import_path(defect.subject.open) is not None
    assert import_path(defect.subject.read) is not None
    assert pickle.loads(pickle.dumps(defect)) == defect


def test_an_unknown_defect_is_refused() -> None:
    """An id that no defect has is refused by code (PROT-9)."""
    with pytest.raises(Refusal) as caught:
        get_defect("nothing")
    assert caught.value.code == "kit_defect_unknown"


def test_the_plain_sink_keeps_every_point(tmp_path: Path) -> None:
    """The plain sink, of which all defects are made, gives back what it took (PROT-1, POINT-1)."""
    sink, points = PlainSink(tmp_path), ordinary_points("n1")
    for point in points:
        getattr(sink, CAPABILITY_METHODS[point.capability])(point)
    sink.flush()
    sink.close()
    sink.close()
    assert read_plain(tmp_path).points == points


def test_the_plain_sink_names_a_torn_tail(tmp_path: Path) -> None:
    """A plain store that is cut in a line is read up to there, and the tail is named (PROT-10)."""
    sink, points = PlainSink(tmp_path), ordinary_points("n1")
    for point in points[:3]:
        sink.emit(point)
    sink.close()
    content = sink.path.read_bytes()
    sink.path.write_bytes(content[:-5])
    found = read_plain(tmp_path)
    assert found.points == points[:2]
    assert found.torn is not None
    sink.path.write_bytes(b"{}\n" + content)
    with pytest.raises(Refusal) as caught:
        read_plain(tmp_path)
    assert caught.value.code == "reader_file_corrupt"
