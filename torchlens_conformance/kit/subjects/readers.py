"""Readers of the subjects whose trackers take seconds to import; these need none of them.

They stand in a module of their own, since a fresh process imports the module of the reader for every place it reads.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reference_sinks.readers import ReadResult, read_tensorboard, read_wandb


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
    results = [read_wandb(run, allow_torn=True) for run in runs]
    return replace(
        results[-1],
        points=tuple(point for result in results for point in result.points),
        unplaced=tuple(item for result in results for item in result.unplaced),
        torn="; ".join(result.torn for result in results if result.torn) or None,
        notes=tuple(note for result in results for note in result.notes),
    )
