"""Fixtures of the statistics tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def flush_subnormals() -> Iterator[Callable[[], bool]]:
    """Give a function that lets this thread flush subnormals to zero, and undo it afterwards."""
    torch = pytest.importorskip("torch")
    yield lambda: bool(torch.set_flush_denormal(True))
    torch.set_flush_denormal(False)
