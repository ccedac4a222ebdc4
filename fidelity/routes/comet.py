"""Comet's own path: metrics and texts of an offline experiment, read back from its archive.

Histograms are no capability of our Comet sink. So that the table does not rest on our word, they go through Comet's own
``log_histogram_3d``, over the grid of Comet's that fits the sent one best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

from reference_sinks import CometSink
from reference_sinks.comet_offline import QUIET, import_comet, start_offline_experiment
from torchlens_conformance.protocol import HistogramPoint, Point, ScalarPoint

from ..answers import stored_answer
from ..received import Received, ReceivedHistogram, Refused, from_result, joined
from .asked import answered, hearing
from .base import Route, emit_each
from .resuming import Resume, Way, begun_run_id, continue_run, keep_run_id

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What is sent of the stimulus: the words of the Comet sink, and histograms beside it."""

_STORE, _ASKED = "experiment", "asked"
_SAME_RATIO = 1e-12
_WAY = "ExistingOfflineExperiment(experiment_key=...)"


def environment(place: Path) -> Mapping[str, str]:
    """Keep Comet quiet and off the network."""
    return QUIET


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points; where our sink refuses a number, Comet itself is asked as well."""
    refused = _log(points, start_offline_experiment(_made(place / _STORE)))
    return _with_comets_word(refused, points, _made(place / _ASKED))


def begin(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points to an experiment that will be continued."""
    experiment = start_offline_experiment(_made(place / _STORE))
    keep_run_id(place, experiment.get_key())
    return _log(points, experiment)


def go_on(points: Sequence[Point], place: Path) -> list[Refused]:
    """Continue the experiment, which offline is an archive of its own under the same key, and log the points."""
    run_id = begun_run_id(place)
    return _log(points, continue_run(lambda: start_offline_experiment(place / _STORE, continued=run_id)))


def _log(points: Sequence[Point], experiment: Any) -> list[Refused]:
    sink = _SinkAndHistograms(experiment)
    refused = emit_each(sink, points, WORDS)
    sink.close()
    experiment.end()
    return refused


def read(place: Path) -> Received:
    """Read the archive; of a histogram what Comet stores, which is the occupied buckets."""
    return _read(place / _STORE)


def read_continued(place: Path) -> Received:
    """Read every archive of the experiment, the oldest first."""
    from reference_sinks.readers.comet_store import stores_in

    key = begun_run_id(place)
    return joined(*(_read(store) for store in stores_in(place / _STORE) if key in store.name))


def _read(store: Path) -> Received:
    from reference_sinks.readers import read_comet

    received = from_result(read_comet(store))
    return replace(received, histograms=tuple(map(_occupied, received.histograms)))


def _occupied(found: ReceivedHistogram) -> ReceivedHistogram:
    """Cut a histogram to the run from its first occupied bucket to its last."""
    filled = [index for index, count in enumerate(found.counts) if count]
    if not filled or found.edges is None:
        return found
    first, last = filled[0], filled[-1]
    return replace(found, counts=found.counts[first : last + 1], edges=found.edges[first : last + 2])


class _SinkAndHistograms(CometSink):
    """The sink, and Comet's own call for what it does not offer."""

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Put the counts at the middles of their buckets into a histogram of Comet's, and log it.

        ``add(values, counts)`` is what Comet itself uses for histograms that were counted elsewhere.
        """
        histogram = _best_grid(point.edges)
        histogram.add([(low + high) / 2 for low, high in pairwise(point.edges)], counts=list(point.counts))
        if self._experiment.log_histogram_3d(histogram, name=point.tag, step=point.step) is None:
            raise ValueError("Comet's log_histogram_3d took nothing")


def _best_grid(edges: Sequence[float]) -> Any:
    """Return an empty histogram of Comet's: with the signed-log2 grid's own numbers where it is one, else the usual."""
    histogram = import_comet().Histogram
    positive = [edge for edge in edges if edge > 0]
    mirrored = all(low == -high for low, high in zip(edges, reversed(edges)))
    ratios = [high / low for low, high in pairwise(positive)]
    if mirrored and 0.0 not in edges and ratios and max(ratios) - min(ratios) < _SAME_RATIO:
        buckets_per_octave = round(1 / log2(ratios[0]))
        # A little further than the last edge, which Comet computes by repeated multiplication.
        stop = positive[-1] * (1 + _SAME_RATIO)
        return histogram(start=positive[0], stop=stop, step=2.0 ** (1 / buckets_per_octave))
    return histogram()


def _made(place: Path) -> Path:
    place.mkdir()
    return place


def _with_comets_word(refused: Sequence[Refused], points: Sequence[Point], place: Path) -> list[Refused]:
    """Log every number that the sink refused through Comet alone, and add what its archive then holds."""
    from reference_sinks.readers import read_comet

    numbers = {(point.tag, point.step): point for point in points if isinstance(point, ScalarPoint)}
    asked = [numbers.get((item.tag, item.step)) for item in refused]
    if not any(asked):
        return list(refused)
    experiment = start_offline_experiment(place)
    warned = {}
    for point in filter(None, asked):
        with hearing("comet_ml") as heard:
            experiment.log_metric(point.tag, point.value, step=point.step)
        warned[point.tag, point.step] = heard.anything
    experiment.end()
    found = {(p.step, repr(p.value)): p for p in read_comet(place) if isinstance(p, ScalarPoint)}

    def answer(point: ScalarPoint) -> str:
        stored = found.get((point.step, repr(point.value)))
        return stored_answer(point, stored, warned=warned[point.tag, point.step])

    return [item if point is None else answered(item, "Comet", answer(point)) for item, point in zip(refused, asked)]


_RESUME = Resume(begin, (Way(_WAY, go_on),), read_continued)

ROUTE = Route("comet", "Comet", "comet_ml", send, read, WORDS, environment=environment, chart="bars", resume=_RESUME)
