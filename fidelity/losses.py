"""What a measured cell means for a person, in one sentence (FID-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import verdicts as words
from .answers import NOT_ASKED, SAME, STORES, WARNED
from .probes import NONFINITE
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

_SINKS: Mapping[str, tuple[str, str]] = {
    "wandb": ("WandbSink", "wandb"),
    "clearml": ("ClearMLSink", "ClearML"),
    "mlflow": ("MLflowSink", "MLflow"),
    "comet": ("CometSink", "Comet"),
}
"""For each route whose tracker is asked itself: our sink, and the tracker's name."""

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
    "precision": "scalars that are hard to keep (1e300, 16777217, 0.1, 5e-324, -0.0)",
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


def losses(cells: Iterable[Mapping[str, Any]], *, route: str | None = None) -> list[str]:
    """Return a sentence for each kind of loss among the cells of one route; grids with the same fate share one.

    What our sink refuses stands beside what the tracker itself does with it, where it was asked.

    Args:
        cells: Cells with ``id``, ``grid``, ``verdict`` and ``numbers``.
        route: The route's id, for the names of our sink and of the tracker.
    """
    grouped: dict[tuple[str, str, str, str, str], list[str]] = {}
    for cell in cells:
        row, word, numbers = cell["id"], cell["verdict"], cell["numbers"]
        if word not in words.LOSSLESS and word not in _NO_LOSS:
            told = (_named(row, word, numbers), _both_sides(row, numbers, route), _detail(row, word, numbers))
            grids = grouped.setdefault((row, word, *told), [])
            if cell["grid"]:
                grids.append(cell["grid"])
    return [_sentence(*key, grids) for key, grids in grouped.items()]


def in_markdown(sentence: str) -> str:
    """Return a sentence for a page, where an odd tag that looks like HTML has to be seen."""
    return sentence.replace("<", "\\<")


def _sentence(row: str, word: str, named: str, both: str, detail: str, grids: list[str]) -> str:
    where = f"on {', '.join(grids)}" if grids else ""
    if named or (both and word == words.REFUSED):
        parts = [where, "; ".join(filter(None, (named, both)))]
    else:
        parts = [_THINGS[row], where, f"{_FATES[word]}; {both}" if both else _FATES[word]]
    return f"{row}: {' '.join(filter(None, parts))}{f' ({detail})' if detail else ''}"


_NO_LOSS = frozenset({words.NOT_APPLICABLE, words.NOT_MEASURED})

_NAMED = frozenset({"nonfinite", "precision", "tags", "resume"})
"""Rows whose sentences name every item."""

_MOST_PAIRS = 4


def _named(row: str, word: str, numbers: Mapping[str, Any]) -> str:
    """Say what arrived changed, as what, and what did not arrive; nothing where the numbers do not tell."""
    if row not in _NAMED or word == words.FAITHFUL:
        return ""
    changed, missing = numbers.get("changed", {}), numbers.get("missing", [])
    parts = []
    if len(set(changed.values())) <= _MOST_PAIRS:
        for as_what, names in _by_answer(changed).items():
            parts.append(f"{_listed(row, names)} {_verb('arrive', names)} as {_listed(row, [as_what])}")
    else:
        first, as_what = next(iter(changed.items()))
        example = f"{_listed(row, [first])} as {_listed(row, [as_what])}"
        parts.append(f"{_listed(row, changed)} arrive changed, {example}")
    if missing:
        said = "only a line in a log says so" if numbers["notices"] else "nothing says so"
        parts.append(f"{_listed(row, missing)} {'does' if len(missing) == 1 else 'do'} not arrive, and {said}")
    return "; ".join(parts)


def _both_sides(row: str, numbers: Mapping[str, Any], route: str | None) -> str:
    """Say what our sink refuses, and what the tracker itself does with the same."""
    itself = numbers.get("itself", {})
    if not itself:
        return ""
    sink, tracker = _SINKS.get(route or "", ("sink", "the tracker"))
    ours = f"our {sink} refuses {_listed(row, itself)}"
    answers = _by_answer({name: answer for name, answer in itself.items() if answer != NOT_ASKED})
    if not answers:
        return ours
    if [*answers.values()] == [[*itself]]:
        theirs = next(iter(answers)) + (" for each" if len(itself) > 1 or _is_count(next(iter(itself))) else "")
    else:
        told = [f"{answer} for {_listed(row, names)}" for answer, names in answers.items()]
        theirs = ", ".join([told[0], *(text.removeprefix(STORES) for text in told[1:])])
    silent = not numbers["notices"] and any(map(_is_silent, answers))
    return f"{ours}; {tracker} itself {theirs}{', and nothing says so' if silent else ''}"


def _is_count(name: str) -> bool:
    return name[0].isdigit() and name.endswith(("scalars", "histograms", "texts"))


def _is_silent(answer: str) -> bool:
    return answer.startswith(STORES) and answer != SAME and not answer.endswith(WARNED)


def _verb(verb: str, names: Sequence[str]) -> str:
    return f"{verb}s" if len(names) == 1 else verb


def _by_answer(answers: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, answer in answers.items():
        names.setdefault(answer, []).append(name)
    return names


def _listed(row: str, names: Iterable[str]) -> str:
    """Write names as a person would: tags in quotes, and the numbers by their values."""
    return ", ".join(repr(name) if row == "tags" else _VALUES.get(name, name) for name in names)


_VALUES = {name: repr(value) for name, value in NONFINITE.items()}


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
    """Say what became of each step that was moved."""
    steps = numbers.get("step_map") or {}
    moved = [(sent, found) for sent, found in steps.items() if found != [int(sent)]]
    arrows = [f"step {sent} becomes {'/'.join(map(str, found))}" for sent, found in moved]
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
