"""What a measured cell means for a person, in one sentence (FID-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import verdicts as words
from .probes import RESUME_STEPS
from .versions.significant import FEW_STEPS

USES: Mapping[str, str] = {
    "tensorboard": "SummaryWriter",
    "wandb": "run.log",
    "wandb-relay": "sync_tensorboard",
    "clearml": "Logger.report",
    "clearml-relay": "clearml_tensorboard",
    "mlflow": "mlflow.log",
    "comet": "experiment.log",
}
"""How a person uses each route: the name of a call or of a setting."""

_THINGS: Mapping[str, str] = {
    "scalars": "values of scalars",
    "scalar-steps": "the steps you give to scalars",
    "histogram-counts": "histogram counts",
    "histogram-edges": "histogram edges",
    "summary": "min, max, sum and sum of squares of a histogram",
    "histogram-steps": "the steps you give to histograms",
    "bucket-cap": "histograms with many buckets",
    "graph": "graphs",
    "text": "texts",
    "nonfinite": "NaN and the infinities",
    "precision": "scalars that float32 cannot hold (1e300, 16777217, 0.1, 5e-324)",
    "large-steps": "steps of 2**31 and more",
    "tags": "odd tags",
    "delivered": "some scalars or histograms",
    "writer-first": "what goes through a writer that existed before the tracker was started",
    "resume": "points of a run that you continue",
}

_FATES: Mapping[str, str] = {
    words.FAITHFUL: "keep float32 precision, about 7 digits",
    words.REWRITTEN: "arrive changed",
    words.INTERPOLATED: "arrive resampled: mass is lost or made up",
    words.ROUNDED: "arrive rounded",
    words.REBINNED: "arrive in other buckets, with the whole mass",
    words.DROPPED_SILENTLY: "do not arrive, and nothing says so",
    words.DROPPED_WITH_NOTICE: "do not arrive; only a line in a log says so",
    words.REFUSED: "are refused with an error",
    words.NOT_CAPTURED: "are not captured",
}


def losses(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each kind of loss among the cells of one route; grids with the same fate share one."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        row, word = cell["id"], cell["verdict"]
        if word not in words.LOSSLESS and word != words.NOT_APPLICABLE:
            grids = grouped.setdefault((row, word, _detail(row, word, cell["numbers"])), [])
            if cell["grid"]:
                grids.append(cell["grid"])
    return [_sentence(*key, grids) for key, grids in grouped.items()]


def _sentence(row: str, word: str, detail: str, grids: list[str]) -> str:
    where = f" on {', '.join(grids)}" if grids else ""
    return f"{row}: {_THINGS[row]}{where} {_FATES[word]}{f' ({detail})' if detail else ''}"


def _detail(row: str, word: str, numbers: Mapping[str, Any]) -> str:
    describe = _DETAILS.get(row)
    return describe(numbers) if describe is not None and word not in _WITHOUT_DETAIL else ""


_WITHOUT_DETAIL = frozenset({words.DROPPED_SILENTLY, words.DROPPED_WITH_NOTICE, words.NOT_CAPTURED})


def _step_map(numbers: Mapping[str, Any]) -> str:
    steps = numbers.get("step_map") or {}
    if any(len(found) > FEW_STEPS for found in steps.values()):
        return "every event gets a row of its own"
    arrows = [f"{sent} becomes {'/'.join(map(str, found))}" for sent, found in list(steps.items())[:3]]
    return ", ".join(arrows)


def _continued(numbers: Mapping[str, Any]) -> str:
    """Say what became of the first step after the continuing, or how much was missing."""
    steps = numbers.get("step_map") or {}
    moved = [(sent, found) for sent, found in steps.items() if found != [int(sent)]]
    late = [(sent, found) for sent, found in moved if int(sent) > RESUME_STEPS[0][-1]]
    arrows = [f"step {sent} becomes {'/'.join(map(str, found))}" for sent, found in late[:1]]
    if numbers.get("overlaps"):
        arrows.append("on top of what was there")
    return ", ".join(arrows)


def _mass(numbers: Mapping[str, Any]) -> str:
    kept = numbers.get("mass_kept_median")
    return f"{100 * kept:.0f}% of the mass in the median" if kept is not None and abs(kept - 1) > 1e-6 else ""


def _largest(numbers: Mapping[str, Any]) -> str:
    largest = numbers.get("largest_exact")
    return "no size is exact" if largest is None else f"exact up to {largest} buckets"


def _share(numbers: Mapping[str, Any]) -> str:
    return f"{numbers['arrived']} of {numbers['sent']} arrived" if numbers.get("arrived") != numbers.get("sent") else ""


_DETAILS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "scalar-steps": _step_map,
    "histogram-steps": _step_map,
    "histogram-counts": _mass,
    "bucket-cap": _largest,
    "delivered": _share,
    "resume": _continued,
}
