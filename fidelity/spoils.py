"""The sabotage: one named spoil a row, each of which must be given that row's own word (FID-7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from . import verdicts as words
from .probes import NONFINITE, RESUME, RESUME_STEPS, ROOT
from .received import Received, ReceivedHistogram, ReceivedScalar
from .stimulus import FAMILY


@dataclass(frozen=True, slots=True)
class Spoil:
    """One way to falsify what a perfect store gave back.

    Args:
        name: What is done, in a few words.
        apply: From what was received to what is claimed to have been received.
        word: The word that the row must be given for it.
    """

    name: str
    apply: Callable[[Received], Received]
    word: str


def _data_scalars(change: Callable[[ReceivedScalar], ReceivedScalar]) -> Callable[[Received], Received]:
    return _scalars(lambda tag: not tag.startswith(f"{ROOT}/"), change)


def _probe_scalars(probe: str, change: Callable[[ReceivedScalar], ReceivedScalar]) -> Callable[[Received], Received]:
    return _scalars(lambda tag: tag.startswith(f"{ROOT}/{probe}/"), change)


def _scalars(
    chosen: Callable[[str], bool], change: Callable[[ReceivedScalar], ReceivedScalar]
) -> Callable[[Received], Received]:
    def apply(received: Received) -> Received:
        return replace(received, scalars=tuple(change(s) if chosen(s.tag) else s for s in received.scalars))

    return apply


def _data_histograms(change: Callable[[ReceivedHistogram], ReceivedHistogram]) -> Callable[[Received], Received]:
    return _histograms(f"{FAMILY}/", change)


def _histograms(
    prefix: str, change: Callable[[ReceivedHistogram], ReceivedHistogram]
) -> Callable[[Received], Received]:
    def apply(received: Received) -> Received:
        changed = (change(h) if h.tag.startswith(prefix) else h for h in received.histograms)
        return replace(received, histograms=tuple(changed))

    return apply


def _move_one_count(histogram: ReceivedHistogram) -> ReceivedHistogram:
    counts = list(histogram.counts)
    fullest = counts.index(max(counts))
    neighbour = fullest + 1 if fullest + 1 < len(counts) else fullest - 1
    counts[fullest] -= 1
    counts[neighbour] += 1
    return replace(histogram, counts=tuple(counts))


def _move_one_edge(histogram: ReceivedHistogram) -> ReceivedHistogram:
    edges = list(histogram.edges or ())
    edges[1] += (edges[2] - edges[1]) / 4
    return replace(histogram, edges=tuple(edges))


def _merge_neighbours(histogram: ReceivedHistogram) -> ReceivedHistogram:
    if len(histogram.counts) <= 512 or histogram.edges is None:
        return histogram
    counts, edges = list(histogram.counts), list(histogram.edges)
    if len(counts) % 2:
        counts, edges = [*counts, 0], [*edges, 2 * edges[-1] - edges[-2]]
    merged = tuple(low + high for low, high in zip(counts[::2], counts[1::2]))
    return replace(histogram, counts=merged, edges=tuple(edges[::2]))


def _first_digits(scalar: ReceivedScalar) -> ReceivedScalar:
    return replace(scalar, value=float(f"{scalar.value:.3g}"))


def _drop_last_data_scalar(received: Received) -> Received:
    last = max(i for i, scalar in enumerate(received.scalars) if scalar.tag.startswith(f"{FAMILY}/"))
    return replace(received, scalars=received.scalars[:last] + received.scalars[last + 1 :])


def _zero_for_nonfinite(scalar: ReceivedScalar) -> ReceivedScalar:
    return scalar if isfinite(scalar.value) else replace(scalar, value=0.0)


def _half_step(scalar: ReceivedScalar) -> ReceivedScalar:
    return replace(scalar, step=None if scalar.step is None else scalar.step % 2**31)


def _shifted(scalar: ReceivedScalar) -> ReceivedScalar:
    last = RESUME_STEPS[0][-1]
    late = scalar.step is not None and scalar.step > last
    return replace(scalar, step=(scalar.step or 0) + last + 1) if late else scalar


SPOILS: Mapping[str, Spoil] = {
    "scalars": Spoil("three significant digits", _data_scalars(_first_digits), words.ROUNDED),
    "scalar-steps": Spoil(
        "steps count from zero",
        _data_scalars(lambda s: replace(s, step=((s.step or 0) - 100) // 2)),
        words.REWRITTEN,
    ),
    "histogram-counts": Spoil("one element in the next bucket", _data_histograms(_move_one_count), words.REBINNED),
    "histogram-edges": Spoil("one edge moved a quarter bucket", _data_histograms(_move_one_edge), words.REBINNED),
    "summary": Spoil(
        "summaries thrown away", _data_histograms(lambda h: replace(h, summary={})), words.DROPPED_SILENTLY
    ),
    "histogram-steps": Spoil(
        "every histogram at step 0", _data_histograms(lambda h: replace(h, step=0)), words.REWRITTEN
    ),
    "bucket-cap": Spoil(
        "neighbours merged over 512 buckets", _histograms(f"{ROOT}/buckets/", _merge_neighbours), words.REBINNED
    ),
    "graph": Spoil("graph thrown away", lambda received: replace(received, graphs=()), words.NOT_CAPTURED),
    "text": Spoil("texts thrown away", lambda received: replace(received, texts=()), words.DROPPED_SILENTLY),
    "nonfinite": Spoil(
        f"{', '.join(NONFINITE)} become 0", _probe_scalars("nonfinite", _zero_for_nonfinite), words.REWRITTEN
    ),
    "precision": Spoil(
        "0.1 becomes 0.1001",
        _probe_scalars("precision", lambda s: replace(s, value=0.1001) if s.value == 0.1 else s),
        words.ROUNDED,
    ),
    "large-steps": Spoil("steps modulo 2**31", _probe_scalars("large-steps", _half_step), words.REWRITTEN),
    "tags": Spoil(
        "odd characters become underscores",
        _probe_scalars("tags", lambda s: replace(s, tag=s.tag.replace("?", "_"))),
        words.REWRITTEN,
    ),
    "delivered": Spoil("the last scalar is missing", _drop_last_data_scalar, words.DROPPED_SILENTLY),
    "writer-first": Spoil("nothing arrives", lambda received: Received(), words.NOT_CAPTURED),
    "resume": Spoil(
        "the last step is added to what follows the continuing", _probe_scalars(RESUME, _shifted), words.REWRITTEN
    ),
}
"""The spoil of each row."""
