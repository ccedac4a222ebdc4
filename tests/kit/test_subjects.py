"""Our own sinks as subjects: importable, readable from a path alone, with a reason for every limit."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from torchlens_conformance.kit import Subject, subjects
from torchlens_conformance.kit.checking import run_checks
from torchlens_conformance.kit.conclude import read_mode
from torchlens_conformance.kit.deviations import excused, read_deviations
from torchlens_conformance.kit.profiles import get_profile
from torchlens_conformance.kit.reading import environment
from torchlens_conformance.kit.wiredness import run_probe
from torchlens_conformance.protocol import CAPABILITY_METHODS

_PACKAGES = {
    "CLEARML": "clearml",
    "COMET": "comet_ml",
    "MLFLOW": "mlflow",
    "TENSORBOARD": "tensorboard",
    "WANDB": "wandb",
}


def subject(name: str) -> Subject:
    """Return a subject, when its tracker is installed."""
    # First, since importing a tracker by itself may change the process; the subject's module sees to that.
    found: Subject = getattr(subjects, name)
    if name in _PACKAGES:
        pytest.importorskip(_PACKAGES[name])
    return found


@pytest.mark.parametrize("name", subjects.__all__)
def test_deviations_have_reasons(name: str) -> None:
    """Every known deviation of ours is about a check of the profile (PROT-1)."""
    path = subject(name).deviations
    checks = [] if path is None else [entry.check for entry in read_deviations(Path(path))]
    assert set(checks) <= set(get_profile("2026.1").levels)
    assert len(set(checks)) == len(checks)
    assert bool(checks) == (name not in ("JSONL", "MLFLOW"))


@pytest.mark.parametrize("name", subjects.__all__)
def test_undeclared_words_have_reasons(name: str, tmp_path: Path) -> None:
    """Each word that a sink of ours does not advertise has a reason, and no other has (PROT-2)."""
    found = subject(name)
    # What is opened in this process stays in it; these say their words in tests of their own, in other processes.
    advertised = {
        "CLEARML": {"scalar", "raw_histogram", "text_manifest"},
        "COMET": {"scalar", "text_manifest"},
        "WANDB": {"scalar", "raw_histogram", "text_manifest"},
    }.get(name)
    if advertised is None:
        sink = found.open(tmp_path)
        advertised = set(sink.capabilities())
        sink.close()
    assert set(found.undeclared) == set(CAPABILITY_METHODS) - advertised


@pytest.mark.parametrize("name", subjects.__all__)
def test_readers_are_fresh(name: str) -> None:
    """Each store is read in a fresh process, the sink without one where it was written (MEM-1, FID-1)."""
    assert read_mode(subject(name)) == ("same process" if name == "MEMORY" else "fresh process")


_QUICK = (
    *("values.scalar", "values.histogram", "values.text", "values.steps", "values.summary", "order.kept"),
    *("delivery.nothing-lost", "tags.unchanged", "teardown.close-is-enough", "survives.read-only"),
    *("survives.kill-between", "concurrency.threads"),
)


@pytest.mark.parametrize("name", ["CLEARML", "TENSORBOARD", "WANDB"])
def test_a_selection_fails_by_its_deviations_only(name: str) -> None:
    """Of a quick selection just the known deviations fail, and no entry is stale (TB-1, WANDB-1)."""
    found = subject(name)
    assert found.deviations is not None
    outcome = run_checks(found, checks=_QUICK, timeout=60)
    known = {entry.check for entry in read_deviations(found.deviations)}
    assert {result.check for result in outcome.results if result.outcome != "passed"} == known & set(_QUICK)
    marked, problems = excused(
        outcome.results,
        read_deviations(found.deviations),
        version=None,
        profile=get_profile("2026.1").levels,
        today=date(2026, 1, 1),
        partial=True,
    )
    assert problems == []
    assert {result.check for result in marked if result.deviation} == known & set(_QUICK)


@pytest.mark.parametrize("name", ["CLEARML", "COMET", "MLFLOW", "TENSORBOARD", "WANDB"])
def test_ordinary_points_of_every_kind_are_taken(name: str) -> None:
    """No ordinary point is refused, whatever order a store wants its steps in (PROT-2, STEP-2)."""
    transcript = run_checks(subject(name), checks=["values.scalar"], timeout=60).transcripts["round-trip"]
    emits = [call for call in transcript.calls if call.point is not None]
    refused = [call for call, plain in zip(emits, transcript.facts["ordinary"]) if plain and call.code is not None]
    assert refused == []


def test_readers_need_no_tracker() -> None:
    """The readers import neither torch nor wandb: a fresh process a place is cheap (FID-1)."""
    program = (
        "import sys; from torchlens_conformance.kit.subjects.readers import read_wandb_place; "
        "print(sorted({'torch', 'wandb', 'tensorboard'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.kit_full
@pytest.mark.parametrize("name", subjects.__all__)
def test_readers_are_wired(name: str) -> None:
    """Each reader reports an altered value of every kind (FID-1)."""
    probe = run_probe(subject(name), timeout=60)
    assert probe.ok, probe.seen
