"""wandb's own path: ``run.log`` with the caller's step, read back from the offline run file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point

from ..answers import TAKES, raised_answer
from ..received import Received, Refused, from_result, joined
from .asked import answered
from .base import Route, emit_each
from .resuming import Resume, Way, begun_run_id, continue_run, keep_run_id

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What the wandb sink carries of the stimulus."""


RESUME_WAY = "wandb.init(id=..., resume='must')"
"""How a run is continued. Offline wandb ignores every value of ``resume`` alike, and says so (measured at 0.30.0)."""


def environment(place: Path) -> Mapping[str, str]:
    """Keep wandb offline, quiet and inside ``place``."""
    return {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(place),
        "WANDB_CACHE_DIR": str(place / "cache"),
        "WANDB_CONFIG_DIR": str(place / "config"),
        "WANDB_DATA_DIR": str(place / "data"),
        "WANDB_DISABLE_GIT": "true",
        "WANDB_DISABLE_CODE": "true",
        "WANDB_ERROR_REPORTING": "false",
    }


def start_run(place: Path, **settings_of_init: Any) -> Any:
    """Start an offline run whose file lies under ``place``; nothing but history is recorded.

    Args:
        place: Where wandb puts its folder.
        settings_of_init: Further arguments of ``wandb.init``.
    """
    import wandb

    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, disable_job_creation=True)
    return wandb.init(project="fidelity", mode="offline", dir=str(place), settings=settings, **settings_of_init)


def start_kept_run(place: Path) -> Any:
    """Start a run as :func:`start_run` does and note its id for whoever continues it."""
    run = start_run(place)
    keep_run_id(place, run.id)
    return run


def continue_kept_run(place: Path) -> Any:
    """Continue the run that :func:`start_kept_run` started. Raises :class:`~.resuming.NotOffered`."""
    run_id = begun_run_id(place)
    return continue_run(lambda: start_run(place, id=run_id, resume="must"))


def finish_run(run: Any, place: Path, *, patience: float = 60.0) -> None:
    """Finish ``run``, the latest one under ``place``, and wait until its file holds the exit record.

    ``run.finish()`` may return while wandb's service process still writes; whoever reads or ends the process then loses
    the tail. Raises ``TimeoutError`` when the record does not come.
    """
    import wandb

    from reference_sinks.readers import read_wandb

    run.finish()
    wandb.teardown()
    deadline = time.monotonic() + patience
    while not read_wandb(_run_files(place)[-1], allow_torn=True).closed:
        if time.monotonic() > deadline:
            raise TimeoutError(f"wandb wrote no exit record within {patience:g} seconds")
        time.sleep(0.05)


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points through our wandb sink; where the sink refuses a histogram, wandb itself is asked as well."""
    refused = _log(points, start_run(place), place)
    histograms = {(p.tag, p.step): p for p in points if isinstance(p, HistogramPoint)}
    return [_with_wandbs_word(item, histograms.get((item.tag, item.step))) for item in refused]


def begin(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points to a run that will be continued."""
    return _log(points, start_kept_run(place), place)


def go_on(points: Sequence[Point], place: Path) -> list[Refused]:
    """Continue the run and log the points."""
    return _log(points, continue_kept_run(place), place)


def _log(points: Sequence[Point], run: Any, place: Path) -> list[Refused]:
    from reference_sinks import WandbSink

    sink = WandbSink(run)
    refused = emit_each(sink, points, WORDS)
    sink.close()
    finish_run(run, place)
    return refused


def read(place: Path) -> Received:
    """Read the run file, and wandb's log for lines about lost data."""
    return _read(place / "wandb")


def read_continued(place: Path) -> Received:
    """Read every run file under the id of the run that was continued: wandb begins a new one each time."""
    run_id = begun_run_id(place)
    return joined(*(_read(file) for file in _run_files(place) if file.name == f"run-{run_id}.wandb"))


def _read(path: Path) -> Received:
    from reference_sinks.readers import read_wandb
    from reference_sinks.readers.wandb import read_wandb_notices

    return from_result(read_wandb(path), logged=read_wandb_notices(path))


def _run_files(place: Path) -> list[Path]:
    """Return the files of all runs, the oldest first: their folders' names begin with the time."""
    return sorted((place / "wandb").glob("*run-*/*.wandb"))


def _with_wandbs_word(item: Refused, point: HistogramPoint | None) -> Refused:
    """Add what wandb's own constructor says to the same histogram, so that no refusal rests on our word alone."""
    import wandb

    if point is None:
        return item
    try:
        wandb.Histogram(np_histogram=(list(point.counts), list(point.edges)))
    except Exception as error:
        return answered(item, "wandb", raised_answer(error), at_length=f"{type(error).__name__}: {error}")
    return answered(item, "wandb", TAKES)


ROUTE = Route(
    "wandb",
    "wandb",
    "wandb",
    send,
    read,
    WORDS,
    environment=environment,
    chart="bars",
    resume=Resume(begin, (Way(RESUME_WAY, go_on),), read_continued),
)
