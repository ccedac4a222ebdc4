"""Fixtures of the watch tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run torch on one thread: models here are tiny, and waiting for a second thread on a busy machine is not."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the caller's modes see what we compute, so that it can be counted."""
    monkeypatch.setattr("torchlens_conformance.watch.unseen._dispatch_modes_off", nullcontext)
