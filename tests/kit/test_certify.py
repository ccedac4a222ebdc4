"""Certification end to end: what is right is conformant, and nothing passes by doing nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit import broken_subjects
from tests.kit.report_examples import CONTROLS, PROFILE
from torchlens_conformance.kit.certify import certify, observe
from torchlens_conformance.kit.conclude import conclude, describe, read_mode
from torchlens_conformance.kit.controls import judge_defect, judge_perfect
from torchlens_conformance.kit.model import (
    CONFORMANT,
    INCOMPLETE,
    NONCONFORMANT,
    PASSED,
    WITH_DEVIATIONS,
    CheckResult,
    Report,
)
from torchlens_conformance.kit.profiles import get_profile
from torchlens_conformance.kit.spellings import SpelledSink, spelled
from torchlens_conformance.kit.subject import Subject
from torchlens_conformance.kit.subjects import MEMORY
from torchlens_conformance.kit.verify import load_report, problems_of
from torchlens_conformance.kit.wiredness import probe_points, reports, run_probe
from torchlens_conformance.protocol import CAPABILITY_METHODS, Refusal

QUICK = ("surface.words", "values.scalar", "delivery.nothing-lost", "reader.sees-changes")
"""Checks that need few processes; the whole profile is run by the tests of the command line and the plugin."""


def judged(subject: Subject, checks: tuple[str, ...] = QUICK) -> Report:
    """Return the report of a run whose profile has only ``checks``, after controls that held."""
    profile = replace(PROFILE, checks=tuple(check for check in PROFILE.checks if check.id in checks))
    observed = observe(subject, profile, controls=CONTROLS[:2])
    return conclude(describe(subject, observed.words), profile, observed)


def test_certify_writes_a_report_that_verifies(tmp_path: Path) -> None:
    """A right sink holds before controls that hold; chosen checks alone are no certificate (PROT-1)."""
    lines: list[str] = []
    report = certify(broken_subjects.JSONL, checks=["values.scalar"], report_dir=tmp_path, progress=lines.append)
    assert [control for control in report.controls if not control.ok] == []
    assert [(result.check, result.outcome) for result in report.results] == [("values.scalar", PASSED)]
    assert report.verdict == INCOMPLETE
    assert "part of the profile" in report.why
    assert report.exit_code == 2
    assert load_report(tmp_path / "report.json") == report.document
    assert any(line.startswith("controls: ") for line in lines)


def test_right_sink() -> None:
    """The JSONL sink is conformant (JSONL-1)."""
    report = judged(broken_subjects.JSONL)
    assert (report.verdict, report.why[:6]) == (CONFORMANT, "All 4 ")


@pytest.mark.parametrize(
    ("subject", "verdict", "word"),
    [
        (broken_subjects.NULL, NONCONFORMANT, "delivery.nothing-lost"),
        (broken_subjects.TELLING, NONCONFORMANT, "reader does not report"),
        (broken_subjects.CONSTANT, NONCONFORMANT, "reader.sees-changes"),
        (broken_subjects.UNDECLARED, INCOMPLETE, "o capability is declared"),
        (broken_subjects.RAISES, NONCONFORMANT, "no such store"),
        (broken_subjects.EXITS, NONCONFORMANT, "exit code 0"),
    ],
)
def test_nothing_passes_by_doing_nothing(subject: Subject, verdict: str, word: str) -> None:
    """A sink that does nothing, or is broken, gets a verdict that says why (PROT-1, FID-1)."""
    report = judged(subject)
    assert report.verdict in (verdict, NONCONFORMANT)
    assert report.verdict != CONFORMANT
    assert word in report.why + " ".join(control.seen for control in report.controls)


def test_memory_is_capped() -> None:
    """MemorySink passes what it can pass, and is with-deviations (MEM-1)."""
    report = judged(replace(MEMORY, deviations=None), ("values.scalar", "delivery.nothing-lost", "reader.sees-changes"))
    assert report.verdict == WITH_DEVIATIONS, report.why
    assert "no store" in report.why
    assert read_mode(MEMORY) == "same process"


def test_unknown_names_are_refused() -> None:
    """An unknown check or profile is refused before anything runs (PROT-9)."""
    for arguments, code in (({"checks": ["no.such"]}, "kit_check_unknown"), ({"profile": "0"}, "kit_profile_unknown")):
        with pytest.raises(Refusal) as refused:
            certify(broken_subjects.JSONL, **arguments)  # type: ignore[arg-type]
        assert refused.value.code == code


def test_probe_alters_every_kind() -> None:
    """The probe alters one value of each capability, and tells the altered point from the one before (FID-1)."""
    plain, _ = probe_points("n1", 1)
    _, changed = probe_points("n1", 2)
    assert changed.keys() == CAPABILITY_METHODS.keys()
    for point in changed.values():
        assert not reports(plain, point)
        assert reports([point], point)


def test_probe_on_a_constant_reader() -> None:
    """A reader that answers the same whatever is stored does not report the altered value (FID-1)."""
    assert not run_probe(broken_subjects.CONSTANT).ok
    assert run_probe(broken_subjects.JSONL).ok


def test_controls_are_judged_by_the_named_checks() -> None:
    """A defect must fail by every check named for it, and an empty list proves nothing (PROT-1)."""
    failed = CheckResult("values.scalar", ("POINT-1",), "failed")
    passed = replace(failed, outcome=PASSED)
    stuck = replace(failed, outcome="could not run")
    assert judge_defect("x", [failed]).ok
    assert not judge_defect("x", [failed, passed]).ok
    assert not judge_defect("x", [stuck]).ok
    assert not judge_defect("x", []).ok
    assert judge_perfect("x", [passed]).ok
    assert not judge_perfect("x", [failed]).ok
    assert not judge_perfect("x", [stuck]).ok
    assert not judge_perfect("x", []).ok


class Spelling:
    """A sink that spells one word as torchlens 2.36 does."""

    def capabilities(self) -> list[str]:
        """Advertise in that spelling."""
        return ["scalar", "embedding"]

    def emit_scalar(self, point: object) -> object:
        """Return the point."""
        return point


def test_spellings() -> None:
    """A profile that accepts a spelling sees the protocol's word; methods stay the sink's own (PROT-2)."""
    sink = SpelledSink(Spelling(), get_profile("2026.1-torchlens").words)
    assert sink.capabilities() == {"scalar", "embedding_module"}
    assert sink.emit_scalar(3) == 3
    assert not hasattr(sink, "preflight_tags")
    assert spelled(broken_subjects.JSONL, {}) is broken_subjects.JSONL


def test_report_finds_its_subject_again() -> None:
    """The report names the module-level subject, so that a check can be replayed (PROT-1)."""
    told = describe(broken_subjects.RAISES, None).told
    assert told["reference"] == {"reader": None, "target": "tests.kit.broken_subjects:RAISES"}
    assert told["declared"] == []
    assert set(told["undeclared"]) == set(CAPABILITY_METHODS)


def test_documents_of_broken_subjects_verify() -> None:
    """The report of a subject that fails in every way still validates (PROT-1)."""
    assert [problem for problem in problems_of(judged(broken_subjects.EXITS).document) if "schema" in problem] == []
