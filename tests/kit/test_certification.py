"""What one process keeps of a certification between its items."""

from __future__ import annotations

from typing import Any

import pytest

from torchlens_conformance.kit import certification, checking, wiredness

from .broken_subjects import JSONL


def test_all_items_share_one_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs in one item uses up the patience of the others: probe and scenarios share it (PROT-10)."""
    shared: list[object] = []

    def noting(function: Any) -> Any:
        def call(*arguments: Any, **settings: Any) -> Any:
            shared.append(settings["patience"])
            return function(*arguments, **settings)

        return call

    monkeypatch.setattr(checking, "run_checks", noting(checking.run_checks))
    monkeypatch.setattr(wiredness, "run_probe", noting(wiredness.run_probe))
    runs = certification(JSONL).runs()
    assert runs.probe().ok
    for check in ("surface.words", "surface.refuses-typed"):
        runs.result(check)
    assert len(shared) >= 3 and len(set(map(id, shared))) == 1
