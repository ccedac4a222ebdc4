"""Readers of the subjects whose trackers take seconds to import; these need none of them.

They stand in a module of their own, since a fresh process imports the module of the reader for every place it reads.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reference_sinks.readers import ReadResult, read_clearml, read_comet, read_tensorboard, read_wandb
from reference_sinks.readers.comet_store import stores_in


def read_tensorboard_place(place: Path) -> ReadResult:
    """Read the event files of ``place``; a torn tail is named and not refused.

    Raises what ``read_tensorboard`` raises, also for a place without an event file.
    """
    return read_tensorboard(place, allow_torn=True)


def read_wandb_place(place: Path) -> ReadResult:
    """Read every offline run of ``place``, oldest first; a torn tail is named and not refused.

    Raises what ``read_wandb`` raises, also for a place without a run.
    """
    runs = sorted(Path(place).glob("wandb/offline-run-*/*.wandb"), key=lambda file: (file.stat().st_mtime_ns, file))
    if len(runs) < 2:
        return read_wandb(place, allow_torn=True)
    return _one_after_another([read_wandb(run, allow_torn=True) for run in runs])


def read_clearml_place(place: Path) -> ReadResult:
    """Read every offline session of ``place``, oldest first; a torn tail is named and not refused.

    Raises what ``read_clearml`` raises, also for a place without a session.
    """
    folders = [path for path in Path(place).glob("cache/offline/offline-*") if path.is_dir()]
    sessions = sorted(folders, key=lambda folder: folder.stat().st_ctime_ns)
    if len(sessions) < 2:
        return read_clearml(place, allow_torn=True)
    return _one_after_another([read_clearml(session, allow_torn=True) for session in sessions])


def read_comet_place(place: Path) -> ReadResult:
    """Read every experiment of ``place``, oldest first; a torn tail is named and not refused.

    Raises what ``read_comet`` raises, also for a place without an experiment.
    """
    stores = stores_in(Path(place))
    if len(stores) < 2:
        return read_comet(place, allow_torn=True)
    return _one_after_another([read_comet(store, allow_torn=True) for store in stores])


def _one_after_another(results: list[ReadResult]) -> ReadResult:
    return replace(
        results[-1],
        points=tuple(point for result in results for point in result.points),
        unplaced=tuple(item for result in results for item in result.unplaced),
        torn="; ".join(result.torn for result in results if result.torn) or None,
        notes=tuple(note for result in results for note in result.notes),
    )
