"""Forwards that we run ourselves beside the training, which no session takes for a forward of it (TIER-1, CB-4)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


class _Here(threading.local):
    """How many forwards of ours run around the present place of a thread."""

    depth = 0


_here = _Here()
_lock = threading.Lock()
_running: Counter[int] = Counter()


@contextmanager
def own_forward(model: nn.Module) -> Iterator[None]:
    """Run forwards of ``model`` that are ours: sessions on it, and on every module in it, hold off meanwhile.

    Whatever else such a forward calls in this thread is held off as well, and modules of the model also in threads of
    its own.
    """
    modules = list(model.modules())  # Kept, so that the ids stay theirs.
    with _lock:
        _running.update(map(id, modules))
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1
        with _lock:
            for key in map(id, modules):
                _running[key] -= 1
                if not _running[key]:
                    del _running[key]


def is_own_forward(module: nn.Module) -> bool:
    """Return whether a call of ``module`` belongs to a forward of ours."""
    return _here.depth > 0 or id(module) in _running
