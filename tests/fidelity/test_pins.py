"""The pins file is read by pip and by the tool alike."""

from __future__ import annotations

import pytest

from fidelity import pins
from fidelity.results import COMMITTED
from fidelity.versions.columns import digest_of
from fidelity.versions.store import load_columns


def test_the_trackers_of_the_table_are_pinned() -> None:
    """The default environment is the one that the published table names (FID-3)."""
    pinned = pins.pinned_versions()
    assert pinned["wandb"] == "0.30.0"
    assert pinned["clearml"] == "2.1.12"
    assert pinned["tensorboard"] == "2.21.0"
    assert "ruff" not in pinned


def test_another_version_and_a_missing_package_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run at other versions says so, and a local label such as +cpu is no other version (FID-3)."""
    found = {**pins.pinned_versions(), "wandb": "0.31.0", "clearml": None}
    found["torch"] = f"{found['torch']}+cpu"
    monkeypatch.setattr(pins, "installed_version", found.get)
    assert pins.version_differences() == ["clearml 2.1.12 is not installed", "wandb is 0.31.0, pinned 0.30.0"]


def test_the_pinned_results_are_those_of_both_committed_tables() -> None:
    """Pins, the table of versions and the table of the pinned versions say the same of every tracker (FID-3)."""
    versions, measured = load_columns(validate=False), load_columns(COMMITTED, validate=False)
    pinned = {pin.distribution: pin for pin in pins.read_pins() if pin.result is not None}
    assert set(pinned) == {column["tracker"] for column in versions}
    for tracker, pin in pinned.items():
        assert digest_of(versions, tracker, pin.version) == pin.result, tracker
        assert digest_of(measured, tracker, pin.version) == pin.result, tracker
