"""wandb's own path: ``run.log`` with the caller's step, read back from the offline run file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point

from ..received import Received, Refused, from_result
from .base import Route, emit_each

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What the wandb sink carries of the stimulus."""


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


def start_run(place: Path) -> Any:
    """Start an offline run whose file lies under ``place``; nothing but history is recorded."""
    import wandb

    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, disable_job_creation=True)
    return wandb.init(project="fidelity", mode="offline", dir=str(place), settings=settings)


def finish_run(run: Any, place: Path, *, patience: float = 60.0) -> None:
    """Finish ``run`` and wait until its file holds the exit record.

    ``run.finish()`` may return while wandb's service process still writes; whoever reads or ends the process then loses
    the tail. Raises ``TimeoutError`` when the record does not come.
    """
    import wandb

    from reference_sinks.readers import read_wandb

    run.finish()
    wandb.teardown()
    deadline = time.monotonic() + patience
    while not read_wandb(place / "wandb", allow_torn=True).closed:
        if time.monotonic() > deadline:
            raise TimeoutError(f"wandb wrote no exit record within {patience:g} seconds")
        time.sleep(0.05)


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points through our wandb sink; where the sink refuses a histogram, wandb itself is asked as well."""
    from reference_sinks import WandbSink

    run = start_run(place)
    sink = WandbSink(run)
    refused = emit_each(sink, points, WORDS)
    sink.close()
    finish_run(run, place)
    histograms = {(p.tag, p.step): p for p in points if isinstance(p, HistogramPoint)}
    return [_with_wandbs_word(item, histograms.get((item.tag, item.step))) for item in refused]


def read(place: Path) -> Received:
    """Read the run file, and wandb's log for lines about lost data."""
    from reference_sinks.readers import read_wandb
    from reference_sinks.readers.wandb import read_wandb_notices

    folder = place / "wandb"
    result = read_wandb(folder)
    return from_result(result, logged=read_wandb_notices(folder))


def _with_wandbs_word(item: Refused, point: HistogramPoint | None) -> Refused:
    """Add what wandb's own constructor says to the same histogram, so that no refusal rests on our word alone."""
    import wandb

    if point is None:
        return item
    try:
        wandb.Histogram(np_histogram=(list(point.counts), list(point.edges)))
    except Exception as error:
        return Refused(item.tag, item.step, item.kind, f"wandb itself: {type(error).__name__}: {error}")
    return Refused(item.tag, item.step, item.kind, f"our sink alone, wandb takes it: {item.reason}")


ROUTE = Route("wandb", "wandb", "wandb", send, read, WORDS, environment=environment, chart="bars")
