"""The table as it was published, and its words in ours; this is the one place that maps them (FID-2, FID-7).

Published for wandb 0.28.2 (relay rows re-measured at 0.30.0), clearml 2.1.12 and TensorBoard 2.21.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import verdicts as words
from .grids import GRIDS

SOURCE = "wandb 0.28.2 (relay rows again at 0.30.0), clearml 2.1.12, TensorBoard 2.21.0"
"""The versions that the published table names."""

_OVER_CAP = frozenset({"uniform-600", "signed-log2-513"})
_UNIFORM = frozenset({"uniform-64", "uniform-600"})


@dataclass(frozen=True, slots=True)
class Published:
    """One published cell.

    Args:
        text: What the published table says.
        word: The same in our words.
    """

    text: str
    word: str


def _everywhere(text: str, word: str) -> dict[str, Published]:
    return dict.fromkeys(GRIDS, Published(text, word))


def _uniform_only(text: str) -> dict[str, Published]:
    # "Exact for uniform bins only" and, in the row of the cap, "over 512 re-binned": both speak about uniform-600.
    exact = _UNIFORM - _OVER_CAP
    return {grid: Published(text, words.EXACT if grid in exact else words.REBINNED) for grid in GRIDS}


def _under_cap(text: str, word: str) -> dict[str, Published]:
    # The same column publishes a cap of 512 buckets: what is over it cannot be there.
    return {grid: Published(text, words.REFUSED if grid in _OVER_CAP else word) for grid in GRIDS}


_SINGLE: Mapping[str, Mapping[str, Published]] = {
    "scalars": {
        "tensorboard": Published("faithful", words.FAITHFUL),
        "wandb": Published("faithful", words.FAITHFUL),
        "wandb-relay": Published("faithful", words.FAITHFUL),
        "clearml-relay": Published("faithful", words.FAITHFUL),
    },
    "scalar-steps": {
        "tensorboard": Published("preserved", words.PRESERVED),
        "wandb": Published("preserved", words.PRESERVED),
        "wandb-relay": Published("rewritten 0,1,2", words.REWRITTEN),
        "clearml-relay": Published("preserved", words.PRESERVED),
    },
    "bucket-cap": {
        "tensorboard": Published("none", words.PRESERVED),
        "wandb": Published("512", words.REFUSED),
        "wandb-relay": Published("over 512 re-binned", words.REBINNED),
        "clearml-relay": Published("resampled to about 48", words.INTERPOLATED),
    },
    "graph": {
        "tensorboard": Published("renders", words.PRESERVED),
        "wandb": Published("n/a", words.NOT_APPLICABLE),
        "wandb-relay": Published("ignored", words.NOT_CAPTURED),
        "clearml-relay": Published("not captured", words.NOT_CAPTURED),
    },
    "delivered": {"wandb-relay": Published("delivers every event", words.PRESERVED)},
    "writer-first": {"wandb-relay": Published("nothing appears", words.NOT_CAPTURED)},
}

_BY_GRID: Mapping[str, Mapping[str, Mapping[str, Published]]] = {
    "histogram-counts": {
        "tensorboard": _everywhere("exact", words.EXACT),
        "wandb": _under_cap("exact", words.EXACT),
        "wandb-relay": _uniform_only("exact for uniform bins only"),
        "clearml-relay": _everywhere("interpolated, about 75% of the mass", words.INTERPOLATED),
    },
    "histogram-edges": {
        "tensorboard": _everywhere("exact", words.EXACT),
        "wandb": _under_cap("exact", words.EXACT),
        "wandb-relay": _uniform_only("exact for uniform bins only"),
        "clearml-relay": _everywhere("2-decimal strings", words.ROUNDED),
    },
    "summary": {
        "tensorboard": _everywhere("preserved", words.PRESERVED),
        "wandb": _under_cap("dropped", words.DROPPED_SILENTLY),
        "wandb-relay": _everywhere("destroyed", words.DROPPED_SILENTLY),
        "clearml-relay": _everywhere("destroyed", words.DROPPED_SILENTLY),
    },
    "histogram-steps": {
        "tensorboard": _everywhere("preserved", words.PRESERVED),
        "wandb": _under_cap("preserved", words.PRESERVED),
        "wandb-relay": _everywhere("rewritten", words.REWRITTEN),
        "clearml-relay": _everywhere("lost (iter=0)", words.REWRITTEN),
    },
}


def published(row: str, route: str, grid: str | None) -> Published | None:
    """Return what was published for a cell, or None where the published table says nothing. Clause: FID-2."""
    if grid is None:
        return _SINGLE.get(row, {}).get(route)
    return _BY_GRID.get(row, {}).get(route, {}).get(grid)
