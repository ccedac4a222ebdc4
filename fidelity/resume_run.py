"""The run that is ended and continued: which processes send it, and how its stores are read back (FID-8).

Every way of continuing has a folder of its own. The run is begun once, in the folder of the default way; the other ways
continue a copy of it. Every part is sent by a process of its own, so that no state survives.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import CAPABILITY_METHODS, Point

from .files import write_pickle, write_text
from .measure import Cell
from .measure_runs import measure_resume, no_resume
from .probes import resume_points
from .processes import ProcessFailed
from .received import Received, Refused
from .routes.base import Route, refusal_of
from .routes.resuming import NotContinued, NotOffered, Resume, kept_run_id

BEFORE, AFTER = "resume-before", "resume-after"
"""What a process sends: the part before the run is ended, or the part after it was continued."""

RUNS = (BEFORE, AFTER)
"""Both, in the order in which they come."""

REFUSED_FILE = "refused.pickle"
"""What was refused in the run of a folder."""

_FOLDER, _FAILED, _NOT_OFFERED = "resume", "failed.txt", "not-offered.txt"


class ResumeUnmeasured(Exception):
    """The default way of continuing could not be measured; the message says why."""


def send_resume(route: Route, place: Path, send: Callable[[str, Path, int], None]) -> None:
    """Let processes send the run of ``route`` in every way; a way that fails is noted, and the others go on.

    Args:
        route: The route.
        place: The folder of its runs.
        send: ``send(run, folder, way)``: one process, in a folder that may exist. What it raises for an interrupt is
            raised again.
    """
    if route.resume is None:
        return
    first = _way_folder(place, 0)
    _noting_failure(first, lambda: send(BEFORE, first, 0))
    folders = [_way_folder(place, index) for index in range(len(route.resume.ways))]
    for folder in folders[1:]:
        shutil.copytree(first, folder, symlinks=True)
    if not (first / _FAILED).exists():
        for index, folder in enumerate(folders):
            _noting_failure(folder, partial(send, AFTER, folder, index))


def _noting_failure(folder: Path, step: Callable[[], None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        step()
    except ProcessFailed as failure:
        if failure.reason == "interrupted":
            raise
        write_text(folder / _FAILED, f"{failure.reason}: {failure.detail}")


def _way_folder(place: Path, index: int) -> Path:
    return place / _FOLDER / str(index)


def send_part(resume: Resume, capabilities: frozenset[str], run: str, folder: Path, store: Path, way: int) -> None:
    """Send one part in this process and write what was refused, or that this way of continuing is not offered."""
    before, after = resume_points()
    if run == BEFORE:
        write_pickle(folder / REFUSED_FILE, resume.begin(before, store))
        return
    refused: list[Refused] = pickle.loads((folder / REFUSED_FILE).read_bytes())
    try:
        refused += resume.ways[way].send(after, store)
    except NotOffered as missing:
        write_text(folder / _NOT_OFFERED, str(missing))
    except NotContinued as raised:
        refused += _all_refused(after, capabilities, raised)
    write_pickle(folder / REFUSED_FILE, refused)


def _all_refused(points: Sequence[Point], capabilities: frozenset[str], raised: NotContinued) -> list[Refused]:
    cause = raised.__cause__ if isinstance(raised.__cause__, Exception) else raised
    sent = [point for point in points if point.capability in capabilities & CAPABILITY_METHODS.keys()]
    return [refusal_of(point, cause) for point in sent]


def resume_received(route: Route, place: Path, read: Callable[[Path, Any], Received]) -> Received | str:
    """Return what the store of the default way holds, or why there is none. Raises :class:`ResumeUnmeasured`.

    Args:
        route: The route.
        place: The folder of its runs.
        read: ``read(folder, reader)``: read the store in a folder, with what was printed and refused.
    """
    if route.resume is None:
        return "no way of continuing a run is known"
    return _read_way(route.resume, place, 0, read)


def resume_cell(route: Route, place: Path, read: Callable[[Path, Any], Received]) -> Cell:
    """Read every way back and return the cell; arguments as for :func:`resume_received`, which says what it raises."""
    received = resume_received(route, place, read)
    if route.resume is None or isinstance(received, str):
        return no_resume(str(received))
    variants: dict[str, Received | str] = {}
    for index, way in enumerate(route.resume.ways):
        if index:
            try:
                variants[way.name] = _read_way(route.resume, place, index, read)
            except ResumeUnmeasured as unmeasured:
                variants[way.name] = f"not measured: {unmeasured}"
    return measure_resume(
        *resume_points(), received, capabilities=route.capabilities, stored_tag=route.stored_tag, variants=variants
    )


def _read_way(resume: Resume, place: Path, index: int, read: Callable[[Path, Any], Received]) -> Received | str:
    folder = _way_folder(place, index)
    if (folder / _NOT_OFFERED).exists():
        return f"{resume.ways[index].name} is not offered: {(folder / _NOT_OFFERED).read_text(encoding='utf-8')}"
    if (folder / _FAILED).exists():
        raise ResumeUnmeasured((folder / _FAILED).read_text(encoding="utf-8"))
    try:
        received = read(folder, resume.read)
    except Exception as error:
        raise ResumeUnmeasured(f"reading back: {type(error).__name__}: {error}") from error
    return _without_names(received, folder / "store", _way_folder(place, 0))


def _without_names(received: Received, store: Path, first: Path) -> Received:
    """Name the run, and the folder in which it was begun, by what they are."""
    run_id = kept_run_id(store)

    def named(text: str) -> str:
        text = text.replace(str(first), "<place>")
        return text.replace(run_id, "<run>") if run_id else text

    return replace(
        received,
        refused=tuple(replace(item, reason=named(item.reason)) for item in received.refused),
        shown=tuple(map(named, received.shown)),
        logged=tuple(map(named, received.logged)),
    )
