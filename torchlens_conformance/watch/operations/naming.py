"""Names of functions as a user writes them, and the labels made of them (TIER-3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torch.overrides import resolve_name

_DUNDER = re.compile(r"^__(\w+?)__$")
_IN_PLACE = frozenset(
    {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"} | {"imatmul"}
)
_REFLECTED = frozenset(
    {"radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "ror", "rxor"}
)
_SPELLED = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or"}


@lru_cache(maxsize=4096)
def function_name(function: Callable[..., Any]) -> str:
    """Return a function's name as a user writes it.

    Operators are named after their function (``__iadd__`` is ``add_``, ``__rsub__`` is ``sub``), a property after
    itself (``T``), everything else by the last part of its name in torch.
    """
    name = resolve_name(function) or getattr(function, "__name__", type(function).__name__)
    parts = str(name).split(".")
    last = parts[-2] if parts[-1] in ("__get__", "__set__") and len(parts) > 1 else parts[-1]
    dunder = _DUNDER.match(last)
    return _operator(dunder[1]) if dunder else last


def _operator(word: str) -> str:
    if word in _IN_PLACE:
        return f"{_SPELLED.get(word[1:], word[1:])}_"
    if word in _REFLECTED:
        return _SPELLED.get(word[1:], word[1:])
    return _SPELLED.get(word, word)


def operation_label(function: str, occurrence: int, number: int) -> str:
    """Return ``<function>_<k>_<n>``. Clause: TIER-3."""
    return f"{function}_{occurrence}_{number}"
