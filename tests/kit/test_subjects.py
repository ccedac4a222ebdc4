"""Our own sinks as subjects: importable, readable from a path alone, with a reason for every limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlens_conformance.kit import Subject, subjects
from torchlens_conformance.kit.conclude import read_mode
from torchlens_conformance.kit.deviations import read_deviations
from torchlens_conformance.kit.profiles import get_profile
from torchlens_conformance.kit.wiredness import run_probe
from torchlens_conformance.protocol import CAPABILITY_METHODS

_PACKAGES = {"TENSORBOARD": "tensorboard", "WANDB": "wandb"}


def subject(name: str) -> Subject:
    """Return a subject, when its tracker is installed."""
    if name in _PACKAGES:
        pytest.importorskip(_PACKAGES[name])
    found: Subject = getattr(subjects, name)
    return found


@pytest.mark.parametrize("name", subjects.__all__)
def test_deviations_have_reasons(name: str) -> None:
    """Every known deviation of ours is about a check of the profile (PROT-1)."""
    path = subject(name).deviations
    checks = [] if path is None else [entry.check for entry in read_deviations(Path(path))]
    assert set(checks) <= set(get_profile("2026.1").levels)
    assert len(set(checks)) == len(checks)
    assert bool(checks) == (name != "JSONL")


@pytest.mark.parametrize("name", subjects.__all__)
def test_undeclared_words_have_reasons(name: str, tmp_path: Path) -> None:
    """Each word that a sink of ours does not advertise has a reason, and no other has (PROT-2)."""
    found = subject(name)
    advertised = {"WANDB": {"scalar", "raw_histogram", "text_manifest"}}.get(name)
    if advertised is None:
        sink = found.open(tmp_path)
        advertised = set(sink.capabilities())
        sink.close()
    assert set(found.undeclared) == set(CAPABILITY_METHODS) - advertised


@pytest.mark.parametrize("name", subjects.__all__)
def test_readers_are_fresh(name: str) -> None:
    """Each store is read in a fresh process, the sink without one where it was written (MEM-1, FID-1)."""
    assert read_mode(subject(name)) == ("same process" if name == "MEMORY" else "fresh process")


@pytest.mark.kit_full
@pytest.mark.parametrize("name", subjects.__all__)
def test_readers_are_wired(name: str) -> None:
    """Each reader reports an altered value of every kind (FID-1)."""
    probe = run_probe(subject(name), timeout=60)
    assert probe.ok, probe.seen
