"""Where an operation is called from, which tells it from others though the operations before it vary (TIER-3)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

from torch import nn

from .wrap import STAND_IN_CALL, is_stand_in_of

_NOT_THE_MODELS = ("torch", __name__.removesuffix(".op_grain.places"))
"""Packages whose own frames say nothing about the model's code: torch, and what observes."""

_MODULE_CALL = nn.Module.__call__.__code__
"""What runs whenever a module is called."""


class Place(NamedTuple):
    """A place in a model's code.

    Attributes:
        function: The function of torch that is called there.
        module: Path of the module that runs, empty for the root; the name of the class of one without a path.
        calls: (file, first line of the function, position in its code) from the call outwards to the forward.
    """

    function: str
    module: str
    calls: tuple[tuple[str, int, int], ...]


def paths_of(model: nn.Module) -> dict[int, str]:
    """Return the path of every module of a model, by id."""
    return {id(module): path for path, module in model.named_modules()}


def place_here(function: str, model: nn.Module, paths: Mapping[int, str]) -> Place:
    """Return from where ``function`` is being called in a forward of ``model``.

    The stack is looked at, so no module has to be hooked: the nearest module that was called is the one that runs.
    """
    calls: list[tuple[str, int, int]] = []
    in_forward = False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is _MODULE_CALL:
            module = frame.f_locals["self"]
            return Place(function, paths.get(id(module), type(module).__name__), tuple(calls))
        if code is STAND_IN_CALL and is_stand_in_of(frame, model):
            break
        if not in_forward and not _is_no_part(frame.f_globals.get("__name__", "")):
            calls.append((code.co_filename, code.co_firstlineno, frame.f_lasti))
            # What is around the forward, a decorator say, may come and go.
            in_forward = code.co_name == "forward"
        frame = frame.f_back
    return Place(function, "", tuple(calls))


@lru_cache(maxsize=1024)
def _is_no_part(name: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in _NOT_THE_MODELS)
