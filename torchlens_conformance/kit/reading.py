"""Reading a place back with the subject's own reader, in a process that knows nothing but the path."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..protocol import POINT_CLASSES
from .model import ReadBack
from .processes import Channel, Limits, Outcome, run_child, show_stack_on_request

FRESH, FORKED, SAME = "fresh process", "forked process", "same process"
"""How a place was read."""

CANNOT_IMPORT = 87
"""Exit code of a fresh process that could not import the reader."""


def import_path(function: Callable[..., Any]) -> tuple[str, str] | None:
    """Return module and name under which ``function`` can be imported, or None when it cannot.

    A lambda, a bound method, a partial and anything that was replaced since has no such name.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is function else None


def read_place(read: Callable[[Path], Any], place: Path, *, limits: Limits, fresh: bool = False) -> ReadBack:
    """Read ``place`` in another process; never raises for what the reader does.

    Args:
        read: The subject's reader.
        place: The folder.
        limits: What the process may take.
        fresh: Whether to start a new interpreter, where the reader can be imported; else it is forked.
    """
    path = import_path(read) if fresh else None
    if path is not None:
        outcome = run_child(partial(_replace_by_fresh, path, place), limits=limits)
        if outcome.ended != f"exit code {CANNOT_IMPORT}":
            return replace(_from_outcome(outcome), how=FRESH)
    return replace(_from_outcome(run_child(partial(_read_and_tell, read, place), limits=limits)), how=FORKED)


def read_here(read: Callable[[Path], Any], place: Path, *, how: str = SAME) -> ReadBack:
    """Read ``place`` in this process; what the reader raises is told in ``error``."""
    try:
        result = read(place)
        points = tuple(result)
        strange = sorted({type(point).__name__ for point in points if type(point) not in POINT_CLASSES})
        if strange:
            return ReadBack(None, f"the reader gave objects that are no points: {', '.join(strange)}", how=how)
        torn = getattr(result, "torn", None)
        unplaced = getattr(result, "unplaced", ())
        count = unplaced if isinstance(unplaced, int) else len(tuple(unplaced or ()))
        return ReadBack(points, None, None if torn is None else str(torn), int(count), how)
    except BaseException as error:
        return ReadBack(None, f"{type(error).__name__}: {error}"[:2000], how=how)


def _read_and_tell(read: Callable[[Path], Any], place: Path, channel: Channel) -> None:
    channel.send("read", read_here(read, place, how=FORKED))


def _from_outcome(outcome: Outcome) -> ReadBack:
    for record in outcome.records:
        if record[0] == "read":
            found: ReadBack = record[1]
            return found
    said = outcome.output.strip().splitlines()[-1:]
    return ReadBack(
        None, f"the reading process ended early: {outcome.ended}" + "".join(f"; it said: {x}" for x in said)
    )


def environment() -> dict[str, str]:
    """Return the variables of a fresh interpreter, which finds modules where this one does."""
    paths = dict.fromkeys(os.path.abspath(path or ".") for path in sys.path)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def _replace_by_fresh(path: tuple[str, str], place: Path, channel: Channel) -> None:
    os.set_inheritable(channel.descriptor, True)
    program = "import sys; from torchlens_conformance.kit.reading import fresh_main; fresh_main(sys.argv[1:])"
    arguments = [sys.executable, "-c", program, str(channel.descriptor), *path, str(place)]
    sys.stdout.flush()
    os.execve(sys.executable, arguments, environment())


def fresh_main(arguments: list[str]) -> None:
    """Be the fresh process: descriptor of the pipe, module and name of the reader, place."""
    descriptor, module, name, place = arguments
    try:
        read: Any = __import__(module, fromlist=["_"])
        for part in name.split("."):
            read = getattr(read, part)
    except Exception:
        os._exit(CANNOT_IMPORT)
    show_stack_on_request()
    channel = Channel(int(descriptor))
    _read_and_tell(read, Path(place), channel)
    channel.send("done")
    os._exit(0)
