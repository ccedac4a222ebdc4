"""MemorySink: points as they came."""

from __future__ import annotations

import pytest

from reference_sinks import MemorySink
from torchlens_conformance.protocol import CAPABILITY_METHODS, Refusal, Sink, advertised_capabilities

from .jsonl_points import ONE_OF_EACH, emit


def test_points_are_kept_as_they_came() -> None:
    """Every point is kept as the same object, in order, and once more under its kind (MEM-1)."""
    sink = MemorySink()
    emit(sink, ONE_OF_EACH)
    assert all(kept is sent for kept, sent in zip(sink.points, ONE_OF_EACH))
    lists = (
        sink.scalars,
        sink.histograms,
        sink.texts,
        sink.graphs,
        sink.images,
        sink.embeddings,
        sink.events,
        sink.metadata,
    )
    assert [len(kept) for kept in lists] == [2, 1, 1, 1, 1, 1, 1, 1]
    assert [point for kept in lists for point in kept] == sink.points


def test_all_capabilities_are_offered() -> None:
    """The sink offers all eight words with their methods (PROT-2)."""
    sink = MemorySink()
    assert isinstance(sink, Sink)
    assert advertised_capabilities(sink) == set(CAPABILITY_METHODS)


def test_a_closed_sink_refuses_and_keeps_its_points() -> None:
    """After close every emit and flush refuses; close may be called again; the points stay (PROT-6, PROT-11)."""
    sink = MemorySink()
    emit(sink, ONE_OF_EACH)
    sink.flush()
    sink.close()
    sink.close()
    for point in ONE_OF_EACH:
        with pytest.raises(Refusal) as caught:
            emit(sink, [point])
        assert caught.value.code == "tracker_sink_closed"
    with pytest.raises(Refusal) as caught:
        sink.flush()
    assert caught.value.code == "tracker_sink_closed"
    assert len(sink.points) == len(ONE_OF_EACH)
